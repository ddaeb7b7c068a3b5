//! State of `kumi top`, and the effects of keys on it. Pure: no terminal, no clock, no socket.

use std::collections::BTreeMap;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use kumihimo_arbiter::board::overrides::Offender;
use kumihimo_arbiter::view::SpaceView;
use kumihimo_machine::handler::{Action, Metric, Microprocess, Resource, Space};
use kumihimo_resource::id::Id;

use super::rates::Rates;
use crate::show::board::Seen;
use crate::show::ps::{Key as Sort, STATES};
use crate::text::short;

/// An address space with more microprocesses starts folded.
const FEW: u64 = 100;
/// Time for which a violation is displayed.
const OF_LATE: Duration = Duration::from_secs(300);

/// Sort keys in the order of their columns.
pub const SORTS: [Sort; 7] =
    [Sort::Id, Sort::Name, Sort::State, Sort::Priority, Sort::Vp, Sort::Thread, Sort::WaitsFor];

/// Reply of one address space to a query.
#[derive(Debug)]
pub struct Sight {
    /// Number of the address space.
    pub number: u16,
    /// Description and metrics, or the reason why it does not reply; `None` if only a list was
    /// requested.
    pub itself: Option<Result<(Space, Vec<Metric>), String>>,
    /// Microprocesses, if requested.
    pub microprocesses: Option<Vec<Microprocess>>,
    /// Usage table, if requested.
    pub resources: Option<Vec<Resource>>,
}

/// Result of one query.
#[derive(Debug)]
pub struct Look {
    /// Time since the start of the program.
    pub at: Duration,
    /// Replies in order of number, or the reason why none can be obtained.
    pub sights: Result<Vec<Sight>, String>,
    /// The board, if there is one.
    pub board: Option<Seen>,
    /// True if all address spaces were queried.
    pub whole: bool,
}

/// Lists to query besides the address spaces: those with rows on the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Numbers of the address spaces.
    pub lists: Vec<u16>,
    /// True for the usage table, false for the microprocesses.
    pub usage: bool,
}

/// Action that a key requests from the main loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Send a request about a microprocess.
    Act(Id, Action),
    /// End the program.
    End,
    /// Stop the program like a shell's job.
    Stop,
    /// Redraw the whole screen.
    Redraw,
}

/// Known state of an address space.
#[derive(Debug)]
pub struct Known {
    /// Number.
    pub number: u16,
    /// Last description.
    pub space: Option<Space>,
    /// Reason why the address space does not reply.
    pub trouble: Option<String>,
    /// Rates of its counters.
    pub rates: Rates,
    /// Microprocesses, sorted, as of the last query.
    pub microprocesses: Vec<Microprocess>,
    /// Usage table as of the last query.
    pub resources: Vec<Resource>,
    /// Whether its rows are shown; `None` until the number of rows is known.
    unfolded: Option<bool>,
}

impl Known {
    /// Returns whether its rows are shown.
    pub fn is_unfolded(&self) -> bool {
        self.unfolded == Some(true)
    }

    /// Number of microprocesses in each of [`STATES`].
    pub fn counts(&self) -> [usize; STATES.len()] {
        STATES.map(|state| self.microprocesses.iter().filter(|m| m.state == state).count())
    }
}

/// A row on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// An address space, by its index in [`Model::known`].
    Space(usize),
    /// Its states and virtual processors.
    Summary(usize),
    /// One of its microprocesses.
    Microprocess(usize, usize),
    /// One of its resources.
    Resource(usize, usize),
}

/// Identity of a row, independent of its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Space(u16),
    Summary(u16),
    Id(Id),
}

/// Meaning of the keys at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Navigation and commands.
    Normal,
    /// The filter is being typed; contains the previous filter.
    Filter(String),
    /// A cancellation is to be confirmed.
    Confirm(Id),
    /// The help is shown.
    Help,
}

/// The complete state.
#[derive(Debug)]
pub struct Model {
    /// Address spaces in order of number.
    pub known: Vec<Known>,
    /// All rows in order.
    pub rows: Vec<Row>,
    /// Index of the selected row.
    pub selected: usize,
    /// Index of the first row on the screen, and the number of rows that fit.
    pub offset: usize,
    height: usize,
    /// The board as of the last query.
    pub board: Option<Seen>,
    /// Sort key of microprocesses.
    pub sort: Sort,
    /// True if the order is reversed.
    pub backwards: bool,
    /// Only rows that contain this text are shown.
    pub filter: String,
    /// True if the usage table is shown, false for microprocesses.
    pub usage: bool,
    /// Meaning of the keys.
    pub mode: Mode,
    /// Result of the last request; true if it failed.
    pub said: Option<(String, bool)>,
    /// Reason why no address space can be queried.
    pub blind: Option<String>,
    /// True after the first query.
    pub looked: bool,
}

impl Default for Model {
    fn default() -> Model {
        Model {
            known: Vec::new(),
            rows: Vec::new(),
            selected: 0,
            offset: 0,
            height: 1,
            board: None,
            sort: Sort::Id,
            backwards: false,
            filter: String::new(),
            usage: false,
            mode: Mode::Normal,
            said: None,
            blind: None,
            looked: false,
        }
    }
}

impl Model {
    /// Handles the result of a query.
    pub fn look(&mut self, look: Look) {
        let sights = match look.sights {
            Ok(sights) => sights,
            Err(why) => {
                self.blind = Some(why);
                return;
            }
        };
        let chosen = self.chosen();
        if look.whole {
            self.blind = None;
            self.looked = true;
            self.board = look.board;
            let mut before: BTreeMap<u16, Known> =
                self.known.drain(..).map(|known| (known.number, known)).collect();
            let known = |sight: &Sight| {
                before.remove(&sight.number).unwrap_or_else(|| Known {
                    number: sight.number,
                    space: None,
                    trouble: None,
                    rates: Rates::default(),
                    microprocesses: Vec::new(),
                    resources: Vec::new(),
                    unfolded: None,
                })
            };
            self.known = sights.iter().map(known).collect();
        }
        for sight in sights {
            if let Some(known) = self.known.iter_mut().find(|known| known.number == sight.number) {
                known.seen(sight, look.at);
            }
        }
        self.sort_all();
        self.arrange(chosen);
    }

    /// Handles the result of a request.
    pub fn told(&mut self, said: String, refused: bool) {
        self.said = Some((said, refused));
    }

    /// Sets the number of rows that fit on the screen.
    pub fn fit(&mut self, height: usize) {
        self.height = height.max(1);
        self.scroll();
    }

    /// The lists with rows on the screen.
    pub fn wanted(&self) -> Wanted {
        let mut lists = Vec::new();
        for row in self.rows.iter().skip(self.offset).take(self.height) {
            let (Row::Space(at)
            | Row::Summary(at)
            | Row::Microprocess(at, _)
            | Row::Resource(at, _)) = *row;
            let known = &self.known[at];
            if known.is_unfolded() && lists.last() != Some(&known.number) {
                lists.push(known.number);
            }
        }
        Wanted { lists, usage: self.usage }
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> Option<Wish> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Wish::End),
                KeyCode::Char('z') => Some(Wish::Stop),
                KeyCode::Char('l') => Some(Wish::Redraw),
                _ => None,
            };
        }
        match std::mem::replace(&mut self.mode, Mode::Normal) {
            Mode::Normal => self.look_around(key.code),
            Mode::Help => None,
            Mode::Confirm(id) => {
                if key.code == KeyCode::Char('y') {
                    return Some(Wish::Act(id, Action::Cancel));
                }
                self.told(format!("{}: not cancelled", short(id)), false);
                None
            }
            Mode::Filter(before) => {
                self.type_filter(key.code, before);
                None
            }
        }
    }

    fn look_around(&mut self, key: KeyCode) -> Option<Wish> {
        let page = self.height.saturating_sub(1).max(1);
        match key {
            KeyCode::Char('q') => return Some(Wish::End),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter(self.filter.clone()),
            KeyCode::Esc => {
                self.filter.clear();
                self.said = None;
                self.arrange(self.chosen());
            }
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected + 1),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(page)),
            KeyCode::PageDown => self.select(self.selected + page),
            KeyCode::Home | KeyCode::Char('g') => self.select(0),
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX),
            KeyCode::Enter | KeyCode::Char(' ') => self.fold(None),
            KeyCode::Left => self.fold(Some(false)),
            KeyCode::Right => self.fold(Some(true)),
            KeyCode::Char('<') => self.sort_by(SORTS.len() - 1),
            KeyCode::Char('>') => self.sort_by(1),
            KeyCode::Char('i') => {
                self.backwards = !self.backwards;
                self.sort_by(0);
            }
            KeyCode::Char('u') => {
                self.usage = !self.usage;
                self.arrange(self.chosen());
            }
            KeyCode::Char('s') => return self.wish(|_| Action::Suspend),
            KeyCode::Char('r') => return self.wish(|_| Action::Resume),
            KeyCode::Char('+' | '=') => {
                return self.wish(|m| Action::Priority((m.priority + 1).min(63)));
            }
            KeyCode::Char('-') => {
                return self.wish(|m| Action::Priority(m.priority.saturating_sub(1)));
            }
            KeyCode::Char('c') => {
                if let Some(Wish::Act(id, _)) = self.wish(|_| Action::Cancel) {
                    self.mode = Mode::Confirm(id);
                }
            }
            _ => {}
        }
        None
    }

    fn type_filter(&mut self, key: KeyCode, before: String) {
        let chosen = self.chosen();
        match key {
            KeyCode::Enter => {}
            KeyCode::Esc => self.filter = before,
            other => {
                match other {
                    KeyCode::Backspace => drop(self.filter.pop()),
                    KeyCode::Char(c) => self.filter.push(c),
                    _ => {}
                }
                self.mode = Mode::Filter(before);
            }
        }
        self.arrange(chosen);
    }

    /// Recent violations of the board's protocol, the latest first.
    pub fn offenders(&self) -> impl Iterator<Item = &Offender> {
        let all = self.board.iter().flat_map(|board| &board.offenders);
        all.filter(|one| one.ago < OF_LATE)
    }

    /// The state at the board of an address space.
    pub fn at_board(&self, pid: u32) -> Option<&SpaceView> {
        self.board.as_ref()?.spaces.iter().find(|space| space.pid == pid)
    }

    /// The selected microprocess.
    pub fn microprocess(&self) -> Option<&Microprocess> {
        match *self.rows.get(self.selected)? {
            Row::Microprocess(space, one) => Some(&self.known[space].microprocesses[one]),
            _ => None,
        }
    }

    fn wish(&mut self, action: impl Fn(&Microprocess) -> Action) -> Option<Wish> {
        let wish = self.microprocess().map(|one| Wish::Act(one.id, action(one)));
        if wish.is_none() {
            self.told(
                "select a microprocess first: up and down; Enter unfolds an address space"
                    .to_owned(),
                true,
            );
        }
        wish
    }

    /// Selects a sort key relative to the current one.
    fn sort_by(&mut self, by: usize) {
        let at = SORTS.iter().position(|sort| *sort == self.sort).unwrap_or_default();
        self.sort = SORTS[(at + by) % SORTS.len()];
        let chosen = self.chosen();
        self.sort_all();
        self.arrange(chosen);
    }

    fn sort_all(&mut self) {
        for known in &mut self.known {
            self.sort.sort(&mut known.microprocesses);
            if self.backwards {
                known.microprocesses.reverse();
            }
            known.resources.sort_by_key(|resource| resource.id);
        }
    }

    /// Folds or unfolds the address space of the selected row. After folding, the address space's
    /// own row is selected.
    fn fold(&mut self, to: Option<bool>) {
        let Some(row) = self.rows.get(self.selected) else { return };
        let (Row::Space(at) | Row::Summary(at) | Row::Microprocess(at, _) | Row::Resource(at, _)) =
            *row;
        let known = &mut self.known[at];
        let unfolded = to.unwrap_or(!known.is_unfolded());
        known.unfolded = Some(unfolded);
        let chosen = if unfolded { self.chosen() } else { Some(Who::Space(self.known[at].number)) };
        self.arrange(chosen);
    }

    fn select(&mut self, row: usize) {
        self.selected = row.min(self.rows.len().saturating_sub(1));
        self.scroll();
    }

    fn scroll(&mut self) {
        let last = self.rows.len().saturating_sub(self.height);
        self.offset = self
            .offset
            .clamp((self.selected + 1).saturating_sub(self.height), self.selected)
            .min(last);
    }

    fn who(&self, row: Row) -> Who {
        match row {
            Row::Space(at) => Who::Space(self.known[at].number),
            Row::Summary(at) => Who::Summary(self.known[at].number),
            Row::Microprocess(at, one) => Who::Id(self.known[at].microprocesses[one].id),
            Row::Resource(at, one) => Who::Id(self.known[at].resources[one].id),
        }
    }

    fn chosen(&self) -> Option<Who> {
        self.rows.get(self.selected).map(|row| self.who(*row))
    }

    /// Builds the rows. The selected row stays selected if it still exists.
    fn arrange(&mut self, chosen: Option<Who>) {
        self.rows.clear();
        let filter = self.filter.to_lowercase();
        for (at, known) in self.known.iter().enumerate() {
            let itself = known.contains(&filter);
            let start = self.rows.len();
            self.rows.push(Row::Space(at));
            if !known.is_unfolded() {
                continue;
            }
            self.rows.push(Row::Summary(at));
            let before = self.rows.len();
            if self.usage {
                let shown = known
                    .resources
                    .iter()
                    .enumerate()
                    .filter(|(_, r)| itself || resource_contains(r, &filter));
                self.rows.extend(shown.map(|(one, _)| Row::Resource(at, one)));
            } else {
                let shown = known
                    .microprocesses
                    .iter()
                    .enumerate()
                    .filter(|(_, m)| itself || contains(m, &filter));
                self.rows.extend(shown.map(|(one, _)| Row::Microprocess(at, one)));
            }
            if self.rows.len() == before && !itself {
                self.rows.truncate(start);
            }
        }
        let there = chosen.and_then(|who| self.rows.iter().position(|row| self.who(*row) == who));
        self.select(there.unwrap_or(self.selected));
    }
}

impl Known {
    fn seen(&mut self, sight: Sight, at: Duration) {
        match sight.itself {
            Some(Ok((space, metrics))) => {
                if self.space.as_ref().is_some_and(|before| before.id != space.id) {
                    self.microprocesses.clear();
                    self.resources.clear();
                }
                self.rates.seen(at, space.id, &metrics);
                self.unfolded.get_or_insert(space.living <= FEW);
                self.space = Some(space);
                self.trouble = None;
            }
            Some(Err(why)) => self.trouble = Some(why),
            None => {}
        }
        if let Some(all) = sight.microprocesses {
            self.microprocesses = all;
        }
        if let Some(all) = sight.resources {
            self.resources = all;
        }
    }

    fn contains(&self, filter: &str) -> bool {
        let program =
            self.space.as_ref().is_some_and(|space| space.program.to_lowercase().contains(filter));
        program || filter.is_empty()
    }
}

fn contains(one: &Microprocess, filter: &str) -> bool {
    let texts = [one.name.as_deref(), one.waits_for.as_deref()];
    texts.into_iter().flatten().any(|text| text.to_lowercase().contains(filter))
        || one.state.to_string().contains(filter)
        || short(one.id).to_string().contains(filter)
}

fn resource_contains(one: &Resource, filter: &str) -> bool {
    one.state.to_lowercase().contains(filter)
        || one.names.iter().any(|name| name.to_lowercase().contains(filter))
        || one.id.to_string().contains(filter)
        || one.owner.is_some_and(|owner| short(owner).to_string().contains(filter))
}
