//! Known state of an address space, and its rows.

use std::time::Duration;

use kumihimo_machine::handler::{Resource, Space};
use kumihimo_machine::top::{TopGroup, TopGrouping, TopPart, TopRow};

use super::answer::Answer;
use super::message::{List, Rows, Sight};
use super::rates::Rates;
use crate::text::short;

/// An address space with more microprocesses starts folded.
const FEW: u64 = 100;
/// Limit on the number of rows. Another program sends their number.
const MOST: u64 = u32::MAX as u64;

/// Known state of an address space.
#[derive(Debug, Default)]
pub struct Known {
    /// Number.
    pub number: u16,
    /// Last description.
    pub space: Option<Space>,
    /// Reason why the address space does not reply.
    pub trouble: Option<String>,
    /// Rates of its counters.
    pub rates: Rates,
    /// Last answer, and the request to which it belongs.
    pub answer: Option<(List, Answer)>,
    /// Usage table as of the last query.
    resources: Vec<Resource>,
    /// Positions in it of the rows that pass the filter.
    shown_resources: Vec<usize>,
    /// The groups whose members are shown, from the outermost one.
    pub levels: Vec<Level>,
    /// Whether its rows are shown; `None` until the number of rows is known.
    pub unfolded: Option<bool>,
}

/// A group whose members are shown.
#[derive(Clone, Debug)]
pub struct Level {
    /// The group.
    pub part: TopPart,
    /// Its name on the screen.
    pub title: String,
    /// Groups in place of its members.
    pub group: TopGrouping,
    /// Position of the group in the list above.
    pub from: usize,
}

/// What a row shows.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A microprocess.
    Microprocess(&'a TopRow),
    /// A group.
    Group(&'a TopGroup),
    /// A row of the usage table.
    Resource(&'a Resource),
    /// A row that no answer has contained yet.
    Unknown,
}

impl Known {
    /// An address space that has not replied yet.
    pub fn of(number: u16) -> Known {
        Known { number, ..Known::default() }
    }

    /// Returns whether its rows are shown.
    pub fn is_unfolded(&self) -> bool {
        self.unfolded == Some(true)
    }

    /// The groups in which its microprocesses are shown. `outside` is the grouping of address
    /// spaces that show no members of a group.
    pub fn grouping(&self, outside: TopGrouping) -> TopGrouping {
        self.levels.last().map_or(outside, |level| level.group)
    }

    /// The groups that the last answer has.
    pub fn answered_grouping(&self) -> TopGrouping {
        self.answer.as_ref().map_or(TopGrouping::None, |(list, _)| list.group)
    }

    /// Number of rows below its own two.
    pub fn len(&self, usage: bool) -> usize {
        if usage {
            return self.shown_resources.len();
        }
        self.answer.as_ref().map_or(0, |(list, answer)| {
            let is_grouped = list.group != TopGrouping::None && answer.has_counters;
            let n = if is_grouped { answer.totals.groups } else { answer.totals.matching };
            n.min(MOST) as usize
        })
    }

    /// The row at a position.
    pub fn item(&self, usage: bool, at: usize) -> Item<'_> {
        if usage {
            let resource = self.shown_resources.get(at).and_then(|n| self.resources.get(*n));
            return resource.map_or(Item::Unknown, Item::Resource);
        }
        let Some((list, answer)) = &self.answer else { return Item::Unknown };
        let Some(at) = at.checked_sub(list.skip as usize) else { return Item::Unknown };
        match (answer.rows.get(at), answer.groups.get(at)) {
            (Some(row), _) => Item::Microprocess(row),
            (None, Some(group)) => Item::Group(group),
            (None, None) => Item::Unknown,
        }
    }

    /// Positions of the rows that are known.
    pub fn loaded(&self, usage: bool) -> std::ops::Range<usize> {
        match &self.answer {
            _ if usage => 0..self.shown_resources.len(),
            None => 0..0,
            Some((list, answer)) => {
                let from = list.skip as usize;
                from..from + answer.rows.len().max(answer.groups.len())
            }
        }
    }

    /// Handles a reply.
    pub fn seen(&mut self, sight: Sight, at: Duration) {
        match sight.itself {
            Some(Ok((space, metrics))) => {
                if self.space.as_ref().is_some_and(|before| before.id != space.id) {
                    self.answer = None;
                    self.resources.clear();
                    self.levels.clear();
                }
                self.rates.seen(at, space.id, &metrics);
                self.unfolded.get_or_insert(space.living <= FEW);
                self.space = Some(space);
                self.trouble = None;
            }
            Some(Err(why)) => self.trouble = Some(why),
            None => {}
        }
        let Some(listed) = sight.listed else { return };
        match listed.rows {
            Rows::Usage(mut all) => {
                all.sort_by_key(|resource| resource.id);
                self.resources = all;
            }
            Rows::Top(answer) => {
                // The answer to an earlier request may arrive after the members of a group were
                // requested.
                let within = self.levels.iter().map(|level| &level.part);
                if within.eq(&listed.list.within) {
                    self.answer = Some((listed.list, answer));
                }
            }
        }
    }

    /// Selects the rows of the usage table that contain a text, which is in lower case.
    pub fn filter_resources(&mut self, filter: &str) {
        let all = self.program_contains(filter);
        let shown = self.resources.iter().enumerate();
        let shown = shown.filter(|(_, one)| all || resource_contains(one, filter));
        self.shown_resources = shown.map(|(at, _)| at).collect();
    }

    /// Returns whether the name of the program contains a text, which is in lower case. All of its
    /// rows are then shown.
    pub fn program_contains(&self, filter: &str) -> bool {
        let program =
            self.space.as_ref().is_some_and(|space| space.program.to_lowercase().contains(filter));
        program || filter.is_empty()
    }
}

/// Returns whether a row of the usage table contains a text, which is in lower case.
pub fn resource_contains(one: &Resource, filter: &str) -> bool {
    one.state.to_lowercase().contains(filter)
        || one.names.iter().any(|name| name.to_lowercase().contains(filter))
        || one.id.to_string().contains(filter)
        || one.owner.is_some_and(|owner| short(owner).to_string().contains(filter))
}
