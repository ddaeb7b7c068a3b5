//! What `kumi top` knows and shows, and what a key does to it. Pure: no terminal, no clock, no
//! socket.

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

/// An address space with more microprocesses is folded at first.
const FEW: u64 = 100;
/// An offence is shown for so long.
const OF_LATE: Duration = Duration::from_secs(300);

/// The keys on which microprocesses are sorted, in the order of their columns.
pub const SORTS: [Sort; 7] =
    [Sort::Id, Sort::Name, Sort::State, Sort::Priority, Sort::Vp, Sort::Thread, Sort::WaitsFor];

/// What was seen of one address space at one look.
#[derive(Debug)]
pub struct Sight {
    /// Its number.
    pub number: u16,
    /// Itself and its metrics; why it does not answer; `None`: it was asked for a list only.
    pub itself: Option<Result<(Space, Vec<Metric>), String>>,
    /// Its microprocesses, if they were wanted.
    pub microprocesses: Option<Vec<Microprocess>>,
    /// Its usage table, if that was wanted.
    pub resources: Option<Vec<Resource>>,
}

/// One look at all of them.
#[derive(Debug)]
pub struct Look {
    /// Since the start.
    pub at: Duration,
    /// In order of number; `Err`: why nothing can be seen.
    pub sights: Result<Vec<Sight>, String>,
    /// The board, where there is one.
    pub board: Option<Seen>,
    /// These are all there are; else only some were asked.
    pub whole: bool,
}

/// What is to be asked for, beside every address space itself: the lists of those whose rows are on
/// the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Numbers of address spaces.
    pub lists: Vec<u16>,
    /// The usage table rather than the microprocesses.
    pub usage: bool,
}

/// What a key asks of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Something is done to a microprocess.
    Act(Id, Action),
    /// It is over.
    End,
    /// As a shell's job, stop.
    Stop,
    /// Draw everything anew.
    Redraw,
}

/// An address space as known so far.
#[derive(Debug)]
pub struct Known {
    /// Its number.
    pub number: u16,
    /// What it last said of itself.
    pub space: Option<Space>,
    /// Why it does not answer.
    pub trouble: Option<String>,
    /// What it counts.
    pub rates: Rates,
    /// Its microprocesses, sorted, and its usage table, as last seen.
    pub microprocesses: Vec<Microprocess>,
    /// See `microprocesses`.
    pub resources: Vec<Resource>,
    /// Whether its rows are shown; `None`: it has not said how many there are.
    unfolded: Option<bool>,
}

impl Known {
    /// Whether its rows are shown.
    pub fn is_unfolded(&self) -> bool {
        self.unfolded == Some(true)
    }

    /// How many microprocesses are in each of [`STATES`], as last listed.
    pub fn counts(&self) -> [usize; STATES.len()] {
        STATES.map(|state| self.microprocesses.iter().filter(|m| m.state == state).count())
    }
}

/// A row of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// Address space number so and so in [`Model::known`].
    Space(usize),
    /// Its states and virtual processors.
    Summary(usize),
    /// One of its microprocesses.
    Microprocess(usize, usize),
    /// One of its resources.
    Resource(usize, usize),
}

/// What a row is, whatever place it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Space(u16),
    Summary(u16),
    Id(Id),
}

/// What the keys mean at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Look around.
    Normal,
    /// The text to filter by is being typed; what it was before.
    Filter(String),
    /// Is this one to be cancelled?
    Confirm(Id),
    /// The keys are explained.
    Help,
}

/// All of it.
#[derive(Debug)]
pub struct Model {
    /// In order of number.
    pub known: Vec<Known>,
    /// What is shown, from the first row to the last.
    pub rows: Vec<Row>,
    /// The chosen row.
    pub selected: usize,
    /// The first row on the screen, and how many fit.
    pub offset: usize,
    height: usize,
    /// The board, as last seen.
    pub board: Option<Seen>,
    /// What microprocesses are sorted by, and whether backwards.
    pub sort: Sort,
    /// See `sort`.
    pub backwards: bool,
    /// Rows that contain it alone are shown.
    pub filter: String,
    /// The usage table rather than the microprocesses.
    pub usage: bool,
    /// What the keys mean.
    pub mode: Mode,
    /// What became of the last wish; true: it was not done.
    pub said: Option<(String, bool)>,
    /// Why nothing can be seen.
    pub blind: Option<String>,
    /// There was a look.
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
    /// What was seen.
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

    /// What became of a wish.
    pub fn told(&mut self, said: String, refused: bool) {
        self.said = Some((said, refused));
    }

    /// So many rows fit.
    pub fn fit(&mut self, height: usize) {
        self.height = height.max(1);
        self.scroll();
    }

    /// Rows of which lists are on the screen.
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

    /// What a key does.
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

    /// Address spaces that did not do their part at the board of late, the latest first.
    pub fn offenders(&self) -> impl Iterator<Item = &Offender> {
        let all = self.board.iter().flat_map(|board| &board.offenders);
        all.filter(|one| one.ago < OF_LATE)
    }

    /// An address space at the board.
    pub fn at_board(&self, pid: u32) -> Option<&SpaceView> {
        self.board.as_ref()?.spaces.iter().find(|space| space.pid == pid)
    }

    /// The chosen microprocess.
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
                "choose a microprocess first: up and down; Enter unfolds an address space"
                    .to_owned(),
                true,
            );
        }
        wish
    }

    /// Moves on by some columns.
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

    /// Folds or unfolds the address space of the chosen row; a folded one's own row is chosen then.
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

    /// Finds anew what is shown. The chosen one stays chosen, if it is still there.
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
