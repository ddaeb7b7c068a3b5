//! Messages between the main loop of `kumi top` and its kernel threads.

use std::time::Duration;

use crossterm::event::KeyEvent;
use kumihimo_machine::handler::{Action, Metric, Resource, Space};
use kumihimo_machine::top::{TopGroupSort, TopGrouping, TopPart, TopQuery, TopSort};
use kumihimo_resource::id::Id;

use super::answer::Answer;
use crate::show::board::Seen;

/// Messages to the main loop.
pub enum Message {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    /// Result of a query.
    Look(Look),
    /// Result of a request; true if it failed.
    Told(String, bool),
    /// The stack of a microprocess, as text.
    Backtrace(Id, String),
    /// Result of a search: the address space and the position of the row, if there is one.
    Found(Option<(u16, u64)>),
    /// A signal that ends the program.
    Signal(i32),
    /// The program was stopped and continues.
    Continued,
    /// The terminal is gone.
    Gone,
    /// The querying thread has ended.
    Blind,
}

/// Commands of the main loop to the querying thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Query these lists from now on.
    Want(Vec<List>),
    /// Send this request.
    Act(Id, Action),
    /// Query the stack of this microprocess.
    Backtrace(Id),
    /// Search a text.
    Find(Find),
    /// Turn the exact accounting of CPU time on or off.
    Exact(bool),
}

/// The rows of one address space that are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Number of the address space.
    pub number: u16,
    /// True for the usage table. The other fields then have no meaning.
    pub usage: bool,
    /// Sort key of microprocesses.
    pub sort: TopSort,
    /// Whether the order is reversed.
    pub backwards: bool,
    /// Order of groups.
    pub group_sort: TopGroupSort,
    /// Only rows that contain this text.
    pub filter: String,
    /// Groups in place of microprocesses.
    pub group: TopGrouping,
    /// Only members of these groups.
    pub within: Vec<TopPart>,
    /// Position of the first row.
    pub skip: u32,
    /// Number of rows.
    pub limit: u32,
}

impl List {
    /// The query of a session for these rows. `again`: see [`TopQuery::again`].
    pub fn query(&self, session: u64, again: bool) -> TopQuery {
        TopQuery {
            session,
            sort: self.sort,
            backwards: self.backwards,
            group_sort: self.group_sort,
            filter: self.filter.clone(),
            group: self.group,
            within: self.within.clone(),
            skip: self.skip,
            limit: self.limit,
            again,
            ..TopQuery::default()
        }
    }
}

/// A search: for the first row that contains a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Find {
    /// The text.
    pub text: String,
    /// The lists to search, in this order. The first one is searched again after the others.
    pub lists: Vec<List>,
    /// Position in the first list at which the search begins.
    pub from: u32,
}

/// Reply of one address space to a query.
#[derive(Debug)]
pub struct Sight {
    /// Number of the address space.
    pub number: u16,
    /// Description and metrics, or the reason why it does not reply; `None` if only a list was
    /// requested.
    pub itself: Option<Result<(Space, Vec<Metric>), String>>,
    /// Rows, if requested.
    pub listed: Option<Listed>,
}

/// Rows of one address space, and the request to which they belong.
#[derive(Debug)]
pub struct Listed {
    /// The request.
    pub list: List,
    /// The rows.
    pub rows: Rows,
}

/// Rows of one address space.
#[derive(Debug)]
pub enum Rows {
    /// Microprocesses or groups.
    Top(Answer),
    /// The usage table.
    Usage(Vec<Resource>),
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
