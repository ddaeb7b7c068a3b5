//! State of `kumi top`: address spaces, rows, selection, and the effects of query results. Pure: no
//! terminal, no clock, no socket. `keys` has the effects of keys.

use std::collections::BTreeMap;
use std::time::Duration;

use kumihimo_arbiter::board::overrides::Offender;
use kumihimo_arbiter::view::SpaceView;
use kumihimo_machine::handler::Microprocess;
use kumihimo_machine::top::{TopGroup, TopGrouping, TopPart};
use kumihimo_resource::id::Id;

use super::known::{Item, Known, Level};
use super::message::{List, Look};
use super::settings::Settings;
use crate::show::board::Seen;
use crate::text::short;

/// Age up to which a violation of the board's protocol is recent.
const OF_LATE: Duration = Duration::from_secs(300);
/// Number of rows of an address space that are no items: its own and the summary.
const HEADS: usize = 2;
/// Number of pages of rows that are requested: the page before the first row on the screen, and
/// those after it.
const PAGES: usize = 4;

/// A row on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// An address space, by its index in [`Model::known`].
    Space(usize),
    /// Its states and virtual processors.
    Summary(usize),
    /// A microprocess, a group or a resource of it, by its position.
    Item(usize, usize),
}

impl Row {
    /// Index of the address space.
    pub fn space(self) -> usize {
        let (Row::Space(at) | Row::Summary(at) | Row::Item(at, _)) = self;
        at
    }
}

/// Identity of the selected row, and its place for the case that this row is gone.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    /// Number of the address space.
    number: u16,
    /// Position among the rows of the address space.
    place: usize,
    item: Option<Who>,
}

/// Identity of an item, independent of its position.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    Id(Id),
    Group(String),
}

/// Meaning of the keys at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Navigation and commands.
    Normal,
    /// The filter is being typed; contains the previous filter.
    Filter(String),
    /// A text to search is being typed; contains the previous one.
    Find(String),
    /// A cancellation is to be confirmed.
    Confirm(Id),
    /// Text covers the rows; contains the first line on the screen.
    Panel(Panel, usize),
}

/// Text that covers the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Panel {
    /// The meaning of keys and columns.
    Help,
    /// Histograms of the address space of the selected row.
    Histograms,
    /// Violations of the board's protocol.
    Violations,
    /// A stack, with its title.
    Stack(String, String),
}

/// The complete state.
#[derive(Debug)]
pub struct Model {
    /// Address spaces in order of number.
    pub known: Vec<Known>,
    /// Index of the selected row.
    pub selected: usize,
    /// Index of the first row on the screen.
    pub offset: usize,
    /// Number of rows that fit on the screen.
    pub(super) height: usize,
    /// A row to select when an answer has it: number of the address space, and position.
    goal: Option<(u16, usize)>,
    /// The board as of the last query.
    pub board: Option<Seen>,
    /// Order and kind of the rows.
    pub settings: Settings,
    /// Only rows that contain this text are shown.
    pub filter: String,
    /// The text that is searched.
    pub search: String,
    /// Whether the exact accounting of CPU time was turned on here.
    pub exact: bool,
    /// Whether only some address spaces are shown, which are unfolded then.
    pub is_narrow: bool,
    /// Meaning of the keys.
    pub mode: Mode,
    /// Result of the last request; true if it failed.
    pub said: Option<(String, bool)>,
    /// Reason why no address space can be queried.
    pub blind: Option<String>,
    /// True after the first query.
    pub looked: bool,
}

impl Model {
    /// The state before the first query.
    pub fn of(settings: Settings) -> Model {
        Model {
            known: Vec::new(),
            selected: 0,
            offset: 0,
            height: 1,
            goal: None,
            board: None,
            settings,
            filter: String::new(),
            search: String::new(),
            exact: false,
            is_narrow: false,
            mode: Mode::Normal,
            said: None,
            blind: None,
            looked: false,
        }
    }

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
            let known = sights.iter().map(|sight| {
                before.remove(&sight.number).unwrap_or_else(|| Known::of(sight.number))
            });
            self.known = known.collect();
        }
        for sight in sights {
            if let Some(known) = self.known.iter_mut().find(|known| known.number == sight.number) {
                if self.is_narrow {
                    known.unfolded.get_or_insert(true);
                }
                known.seen(sight, look.at);
            }
        }
        self.arrange(chosen);
        self.reach_goal();
    }

    /// Handles the result of a request.
    pub fn told(&mut self, said: String, refused: bool) {
        self.said = Some((said, refused));
    }

    /// Shows the stack of a microprocess.
    pub fn show_stack(&mut self, id: Id, text: String) {
        self.mode = Mode::Panel(Panel::Stack(format!("stack of {}", short(id)), text), 0);
    }

    /// Handles the result of a search: selects the row.
    pub fn found(&mut self, found: Option<(u16, u64)>) {
        let there = found.and_then(|(number, at)| {
            let known = self.known.iter_mut().find(|known| known.number == number)?;
            known.unfolded = Some(true);
            Some((number, usize::try_from(at).ok()?))
        });
        match there {
            Some((number, at)) => {
                let said = format!(
                    "{:?} is in row {} of address space {number}; n searches on",
                    self.search,
                    at.saturating_add(1)
                );
                self.told(said, false);
            }
            None => self.told(format!("no row contains {:?}", self.search), true),
        }
        self.aim(there);
    }

    /// Sets the number of rows that fit on the screen.
    pub fn fit(&mut self, height: usize) {
        self.height = height.max(1);
        self.scroll();
    }

    /// The lists of which rows are on the screen, each with about a page more on both sides.
    pub fn wanted(&self) -> Vec<List> {
        let (top, bottom) = (self.offset, self.offset + self.height);
        let panel = match &self.mode {
            Mode::Panel(Panel::Histograms, _) => self.selected_space(),
            _ => None,
        };
        let mut lists = Vec::new();
        let mut start = 0;
        for (at, known) in self.known.iter().enumerate() {
            let rows = self.rows_of(known);
            // Without rows: hidden by the filter until an answer has some.
            let is_visible = (start < bottom && start + rows > top) || rows == 0;
            if known.is_unfolded() && is_visible {
                let first = top.saturating_sub(start + HEADS);
                let skip = (first / self.height).saturating_sub(1) * self.height;
                lists.push(self.list(known, skip, self.height * PAGES));
            } else if panel == Some(at) {
                lists.push(self.list(known, 0, 0));
            }
            start += rows;
        }
        lists
    }

    /// The request for some rows of an address space.
    pub(super) fn list(&self, known: &Known, skip: usize, limit: usize) -> List {
        let is_whole = known.program_contains(&self.filter.to_lowercase());
        if self.settings.usage {
            return List { number: known.number, usage: true, ..List::default() };
        }
        List {
            number: known.number,
            usage: false,
            sort: self.settings.sort,
            backwards: self.settings.backwards,
            group_sort: self.settings.group_sort,
            filter: if is_whole { String::new() } else { self.filter.clone() },
            group: known.grouping(self.settings.group),
            within: known.levels.iter().map(|level| level.part.clone()).collect(),
            skip: u32::try_from(skip).unwrap_or(u32::MAX),
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
        }
    }

    /// Number of rows of an address space. It has none if the filter hides it.
    fn rows_of(&self, known: &Known) -> usize {
        if !known.is_unfolded() {
            return 1;
        }
        let items = known.len(self.settings.usage);
        let is_known = self.settings.usage || known.answer.is_some();
        let is_hidden = items == 0
            && is_known
            && known.levels.is_empty()
            && !known.program_contains(&self.filter.to_lowercase());
        if is_hidden { 0 } else { HEADS + items }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.known.iter().map(|known| self.rows_of(known)).sum()
    }

    /// The row at a position.
    pub fn row(&self, mut at: usize) -> Option<Row> {
        for (index, known) in self.known.iter().enumerate() {
            let rows = self.rows_of(known);
            if at < rows {
                return Some(match at {
                    0 => Row::Space(index),
                    1 => Row::Summary(index),
                    at => Row::Item(index, at - HEADS),
                });
            }
            at -= rows;
        }
        None
    }

    /// What a row of an address space shows.
    pub fn item(&self, space: usize, at: usize) -> Item<'_> {
        self.known[space].item(self.settings.usage, at)
    }

    /// What the selected row shows, if it is an item.
    pub fn selected_item(&self) -> Option<Item<'_>> {
        match self.row(self.selected)? {
            Row::Item(space, at) => Some(self.item(space, at)),
            Row::Space(_) | Row::Summary(_) => None,
        }
    }

    /// Index of the address space of the selected row.
    pub fn selected_space(&self) -> Option<usize> {
        self.row(self.selected).map(Row::space)
    }

    /// The selected microprocess.
    pub fn microprocess(&self) -> Option<&Microprocess> {
        match self.selected_item()? {
            Item::Microprocess(row) => Some(&row.microprocess),
            _ => None,
        }
    }

    /// Violations of the board's protocol, the latest first, and whether each is recent.
    pub fn violations(&self) -> impl Iterator<Item = (&Offender, bool)> {
        let all = self.board.iter().flat_map(|board| &board.offenders);
        all.map(|one| (one, one.ago < OF_LATE))
    }

    /// The state at the board of an address space.
    pub fn at_board(&self, pid: u32) -> Option<&SpaceView> {
        self.board.as_ref()?.spaces.iter().find(|space| space.pid == pid)
    }

    /// The groups that the address space of the selected row shows.
    pub fn selected_grouping(&self) -> TopGrouping {
        let known = self.selected_space().map(|at| &self.known[at]);
        known.map_or(self.settings.group, |known| known.grouping(self.settings.group))
    }

    /// Whether the rows of that address space are groups.
    pub fn shows_groups(&self) -> bool {
        let known = self.selected_space().map(|at| &self.known[at]);
        let is_older = known
            .and_then(|known| known.answer.as_ref())
            .is_some_and(|(_, answer)| !answer.has_counters);
        self.selected_grouping() != TopGrouping::None && !is_older
    }

    /// Shows the members of a group in place of the groups.
    pub(super) fn enter(&mut self, space: usize, level: Level) {
        self.known[space].levels.push(level);
        self.aim(Some((self.known[space].number, 0)));
    }

    /// Shows the groups again to which the members belong. Returns false if there are none.
    pub(super) fn leave(&mut self, space: usize) -> bool {
        let Some(level) = self.known[space].levels.pop() else { return false };
        self.aim(Some((self.known[space].number, level.from)));
        true
    }

    /// Selects a row by its position in its address space, now or as soon as an answer has it.
    fn aim(&mut self, goal: Option<(u16, usize)>) {
        let Some((number, at)) = goal else { return };
        self.goal = goal;
        if let Some(index) = self.known.iter().position(|known| known.number == number) {
            self.select(self.start(index) + HEADS + at);
        }
        self.reach_goal();
    }

    /// Selects the row that was aimed at, if the last answer belongs to the present request.
    fn reach_goal(&mut self) {
        let Some((number, at)) = self.goal else { return };
        let Some(index) = self.known.iter().position(|known| known.number == number) else {
            return;
        };
        let known = &self.known[index];
        let is_present = self.settings.usage
            || known.answer.as_ref().is_some_and(|(list, _)| {
                *list == List { skip: list.skip, limit: list.limit, ..self.list(known, 0, 0) }
            });
        if is_present {
            self.goal = None;
            let items = known.len(self.settings.usage);
            let place = if items == 0 { 0 } else { HEADS + at.min(items - 1) };
            self.select(self.start(index) + place);
        }
    }

    /// Index of the first row of an address space.
    pub(super) fn start(&self, index: usize) -> usize {
        self.known[..index].iter().map(|known| self.rows_of(known)).sum()
    }

    pub(super) fn select(&mut self, row: usize) {
        self.selected = row.min(self.len().saturating_sub(1));
        self.scroll();
    }

    fn scroll(&mut self) {
        let last = self.len().saturating_sub(self.height);
        self.offset = self
            .offset
            .clamp((self.selected + 1).saturating_sub(self.height), self.selected)
            .min(last);
    }

    pub(super) fn chosen(&self) -> Option<Chosen> {
        let row = self.row(self.selected)?;
        let space = row.space();
        let item = match row {
            Row::Item(space, at) => who(self.item(space, at)),
            Row::Space(_) | Row::Summary(_) => None,
        };
        let place = self.selected - self.start(space);
        Some(Chosen { number: self.known[space].number, place, item })
    }

    /// Fits selection and filter to changed rows. The selected row stays selected if it is among
    /// the known ones. Otherwise the selection keeps its place.
    pub(super) fn arrange(&mut self, chosen: Option<Chosen>) {
        let filter = self.filter.to_lowercase();
        for known in &mut self.known {
            known.filter_resources(&filter);
        }
        let there = chosen.and_then(|chosen| {
            let index = self.known.iter().position(|known| known.number == chosen.number)?;
            let rows = self.rows_of(&self.known[index]);
            let place = chosen.item.and_then(|of| self.position(index, &of));
            let place = place.map_or(chosen.place, |at| HEADS + at);
            Some(self.start(index) + place.min(rows.saturating_sub(1)))
        });
        self.select(there.unwrap_or(self.selected));
    }

    /// Position of an item among the known rows.
    fn position(&self, space: usize, of: &Who) -> Option<usize> {
        let known = &self.known[space];
        known.is_unfolded().then(|| known.loaded(self.settings.usage)).and_then(|mut loaded| {
            loaded.find(|at| who(self.item(space, *at)).as_ref() == Some(of))
        })
    }
}

fn who(item: Item<'_>) -> Option<Who> {
    match item {
        Item::Microprocess(row) => Some(Who::Id(row.microprocess.id)),
        Item::Resource(resource) => Some(Who::Id(resource.id)),
        Item::Group(group) => Some(Who::Group(group.what.clone())),
        Item::Unknown => None,
    }
}

/// The group of a row as a condition on microprocesses; `None` if it cannot be one.
pub(super) fn part_of(by: TopGrouping, group: &TopGroup) -> Option<TopPart> {
    let what = || group.what.clone();
    match by {
        TopGrouping::None => None,
        TopGrouping::WaitsFor => Some(TopPart::WaitsFor(what())),
        TopGrouping::Name => Some(TopPart::Name(what())),
        TopGrouping::Tree => Some(TopPart::Tree(what())),
        TopGrouping::Stack => group.stack.map(TopPart::Stack),
    }
}
