//! Effects of keys on the state of `kumi top`.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use kumihimo_machine::handler::{Action, Microprocess};
use kumihimo_machine::top::{MOST_PARTS, TopGroupSort, TopGrouping, TopSort};

use super::known::{Item, Level, resource_contains};
use super::message::{Find, Order};
use super::model::{Mode, Model, Panel, Row, part_of};
use crate::text::short;

/// Sort keys in the order of their columns.
pub const SORTS: [TopSort; 10] = [
    TopSort::Id,
    TopSort::Name,
    TopSort::Cpu,
    TopSort::State,
    TopSort::Priority,
    TopSort::Vp,
    TopSort::Switches,
    TopSort::Stack,
    TopSort::WaitTime,
    TopSort::WaitsFor,
];

/// Orders of groups in the order of their columns.
pub const GROUP_SORTS: [TopGroupSort; 4] =
    [TopGroupSort::Count, TopGroupSort::Cpu, TopGroupSort::WaitTime, TopGroupSort::What];

/// Groupings in the order in which a key selects them.
const GROUPINGS: [TopGrouping; 5] = [
    TopGrouping::None,
    TopGrouping::Name,
    TopGrouping::Tree,
    TopGrouping::WaitsFor,
    TopGrouping::Stack,
];

/// Action that a key requests from the main loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Give this command to the querying thread.
    Order(Order),
    /// End the program.
    End,
    /// Stop the program like a shell's job.
    Stop,
    /// Redraw the whole screen.
    Redraw,
}

/// The element `by` places after `now`, in a circle.
fn next<T: Copy + PartialEq>(all: &[T], now: T, by: usize) -> T {
    let at = all.iter().position(|one| *one == now).unwrap_or_default();
    all[(at + by) % all.len()]
}

impl Model {
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
            Mode::Normal => self.command(key.code),
            Mode::Panel(panel, from) => {
                self.scroll_panel(key.code, panel, from);
                None
            }
            Mode::Confirm(id) => {
                if key.code == KeyCode::Char('y') {
                    return Some(Wish::Order(Order::Act(id, Action::Cancel)));
                }
                self.told(format!("{}: not cancelled", short(id)), false);
                None
            }
            Mode::Filter(before) => {
                let chosen = self.chosen();
                if type_text(key.code, &mut self.filter, &before) {
                    self.mode = Mode::Filter(before);
                }
                self.arrange(chosen);
                None
            }
            Mode::Find(before) => {
                if type_text(key.code, &mut self.search, &before) {
                    self.mode = Mode::Find(before);
                    return None;
                }
                if key.code != KeyCode::Enter {
                    return None;
                }
                if self.search.is_empty() {
                    self.search = before;
                }
                self.find()
            }
        }
    }

    fn command(&mut self, key: KeyCode) -> Option<Wish> {
        let page = self.height.saturating_sub(1).max(1);
        match key {
            KeyCode::Char('q') => return Some(Wish::End),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Panel(Panel::Help, 0),
            KeyCode::Char('v') => self.mode = Mode::Panel(Panel::Histograms, 0),
            KeyCode::Char('!') => self.mode = Mode::Panel(Panel::Violations, 0),
            KeyCode::Char('/') => self.mode = Mode::Filter(self.filter.clone()),
            KeyCode::Char('f') => {
                self.mode = Mode::Find(std::mem::take(&mut self.search));
            }
            KeyCode::Char('n') => return self.find(),
            KeyCode::Backspace => {
                self.leave_group();
            }
            KeyCode::Esc => {
                if !self.leave_group() {
                    self.filter.clear();
                    self.arrange(self.chosen());
                }
                self.said = None;
            }
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected + 1),
            KeyCode::PageUp => self.select(self.selected.saturating_sub(page)),
            KeyCode::PageDown => self.select(self.selected + page),
            KeyCode::Home | KeyCode::Char('g') => self.select(0),
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX),
            KeyCode::Enter => self.open(),
            KeyCode::Char(' ') => self.fold(None),
            KeyCode::Left => self.fold(Some(false)),
            KeyCode::Right => self.fold(Some(true)),
            KeyCode::Char('<') => self.sort_by(SORTS.len() - 1, GROUP_SORTS.len() - 1),
            KeyCode::Char('>') => self.sort_by(1, 1),
            KeyCode::Char('i') => self.settings.backwards = !self.settings.backwards,
            KeyCode::Char('t') => self.group_by(1),
            KeyCode::Char('T') => self.group_by(GROUPINGS.len() - 1),
            KeyCode::Char('u') => {
                self.settings.usage = !self.settings.usage;
                self.arrange(self.chosen());
            }
            KeyCode::Char('e') => {
                self.exact = !self.exact;
                return Some(Wish::Order(Order::Exact(self.exact)));
            }
            KeyCode::Char('b') => return self.backtrace(),
            KeyCode::Char('s') => return self.act(|_| Action::Suspend),
            KeyCode::Char('r') => return self.act(|_| Action::Resume),
            KeyCode::Char('+' | '=') => {
                return self.act(|m| Action::Priority((m.priority + 1).min(63)));
            }
            KeyCode::Char('-') => {
                return self.act(|m| Action::Priority(m.priority.saturating_sub(1)));
            }
            KeyCode::Char('c') => {
                if let Some(Wish::Order(Order::Act(id, _))) = self.act(|_| Action::Cancel) {
                    self.mode = Mode::Confirm(id);
                }
            }
            _ => {}
        }
        None
    }

    /// Sorts by another column: that of microprocesses some places further, or that of groups where
    /// groups are shown.
    fn sort_by(&mut self, places: usize, group_places: usize) {
        if self.shows_groups() {
            self.settings.group_sort = next(&GROUP_SORTS, self.settings.group_sort, group_places);
        } else {
            self.settings.sort = next(&SORTS, self.settings.sort, places);
        }
    }

    /// Scrolls a panel. Every other key closes it.
    fn scroll_panel(&mut self, key: KeyCode, panel: Panel, from: usize) {
        let page = self.height.saturating_sub(1).max(1);
        let from = match key {
            KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => from + 1,
            KeyCode::PageUp => from.saturating_sub(page),
            KeyCode::PageDown => from + page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => usize::MAX,
            _ => return,
        };
        self.mode = Mode::Panel(panel, from);
    }

    fn act(&mut self, action: impl Fn(&Microprocess) -> Action) -> Option<Wish> {
        let wish = self.microprocess().map(|one| Wish::Order(Order::Act(one.id, action(one))));
        if wish.is_none() {
            self.told(
                "select a microprocess first: up and down; Enter unfolds an address space or group"
                    .to_owned(),
                true,
            );
        }
        wish
    }

    /// Shows the stack of a group, or requests that of a microprocess.
    fn backtrace(&mut self) -> Option<Wish> {
        if let Some(Item::Group(group)) = self.selected_item()
            && group.stack.is_some()
        {
            let title = format!("stack of {} microprocesses", group.count);
            self.mode = Mode::Panel(Panel::Stack(title, group.what.clone()), 0);
            return None;
        }
        match self.act(|_| Action::Suspend)? {
            Wish::Order(Order::Act(id, _)) => Some(Wish::Order(Order::Backtrace(id))),
            _ => None,
        }
    }

    /// Searches the text after the selected row.
    fn find(&mut self) -> Option<Wish> {
        if self.search.is_empty() {
            self.told("no text to search: press f, and type it".to_owned(), true);
            return None;
        }
        let selected = self.row(self.selected)?;
        let from = match selected {
            Row::Item(_, at) => at + 1,
            Row::Space(_) | Row::Summary(_) => 0,
        };
        let space = selected.space();
        if self.settings.usage {
            self.find_resource(space, from);
            return None;
        }
        let circle = self.known[space..].iter().chain(&self.known[..space]);
        let lists = circle.map(|known| self.list(known, 0, 0)).collect();
        let from = u32::try_from(from).unwrap_or(u32::MAX);
        Some(Wish::Order(Order::Find(Find { text: self.search.clone(), lists, from })))
    }

    /// Searches the known rows of the usage table, in a circle.
    fn find_resource(&mut self, space: usize, from: usize) {
        let text = self.search.to_lowercase();
        let count = self.known.len();
        let places = (0..=count).flat_map(|nth| {
            let index = (space + nth) % count;
            let rows = self.known[index].len(true);
            (if nth == 0 { from } else { 0 }..rows).map(move |at| (index, at))
        });
        let found = { places }.find(|(index, at)| match self.item(*index, *at) {
            Item::Resource(resource) => resource_contains(resource, &text),
            _ => false,
        });
        self.found(found.map(|(index, at)| (self.known[index].number, at as u64)));
    }

    /// Shows the members of the selected group, or folds the address space.
    fn open(&mut self) {
        if let Some(Row::Item(space, at)) = self.row(self.selected)
            && let Item::Group(group) = self.item(space, at)
        {
            let by = self.known[space].answered_grouping();
            let Some(part) = part_of(by, group) else { return };
            let title = title(group.what.as_str(), by);
            if self.known[space].levels.len() == MOST_PARTS {
                self.told("groups within groups end here".to_owned(), true);
                return;
            }
            self.enter(space, Level { part, title, group: TopGrouping::None, from: at });
            return;
        }
        self.fold(None);
    }

    fn leave_group(&mut self) -> bool {
        self.selected_space().is_some_and(|space| self.leave(space))
    }

    /// Selects a grouping relative to the present one: of the members that are shown, or of all
    /// address spaces that show no members.
    fn group_by(&mut self, by: usize) {
        self.settings.usage = false;
        let Some(space) = self.selected_space() else { return };
        let group = next(&GROUPINGS, self.selected_grouping(), by);
        match self.known[space].levels.last_mut() {
            Some(level) => level.group = group,
            None => self.settings.group = group,
        }
    }

    /// Folds or unfolds the address space of the selected row. After folding, the address space's
    /// own row is selected.
    fn fold(&mut self, to: Option<bool>) {
        let Some(at) = self.selected_space() else { return };
        let chosen = self.chosen();
        let known = &mut self.known[at];
        let unfolded = to.unwrap_or(!known.is_unfolded());
        known.unfolded = Some(unfolded);
        if unfolded {
            self.arrange(chosen);
        } else {
            self.select(self.start(at));
        }
    }
}

/// A group in one short line.
fn title(what: &str, by: TopGrouping) -> String {
    match by {
        TopGrouping::Stack => first_frame(what),
        _ if what.is_empty() => "those without a name".to_owned(),
        _ => what.to_owned(),
    }
}

/// The function at the top of a stack, as the served process formats it: `   0: function`.
pub fn first_frame(stack: &str) -> String {
    let first = stack.lines().next().unwrap_or_default().trim();
    first.strip_prefix("0: ").unwrap_or(first).to_owned()
}

/// Edits a text by a key. Returns false if the input is finished.
fn type_text(key: KeyCode, text: &mut String, before: &str) -> bool {
    match key {
        KeyCode::Enter => return false,
        KeyCode::Esc => {
            before.clone_into(text);
            return false;
        }
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(c) => text.push(c),
        _ => {}
    }
    true
}
