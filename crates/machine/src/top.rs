//! Query and answer of `kumi top`: the address space makes the totals, sorts and filters, and sends
//! only the rows that are shown.

use serde::{Deserialize, Serialize};

use crate::microprocess::Microprocess;

/// Largest number of rows or groups in one answer.
pub const MOST_ROWS: u32 = 10_000;
/// Largest number of parts in [`TopQuery::within`].
pub const MOST_PARTS: usize = 16;

/// A query. Rates and CPU shares are those since the last query of the same session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopQuery {
    /// Number of the session, chosen at random by the client.
    pub session: u64,
    /// Sort key of the rows.
    #[serde(default)]
    pub sort: TopSort,
    /// Whether the order is reversed.
    #[serde(default)]
    pub backwards: bool,
    /// Only microprocesses whose ID, name, state or object of the wait contains this text, without
    /// regard to case. Empty: all.
    #[serde(default)]
    pub filter: String,
    /// Groups to send in place of rows.
    #[serde(default)]
    pub group: TopGrouping,
    /// Number of rows or groups to skip.
    #[serde(default)]
    pub skip: u32,
    /// Number of rows or groups to send, at most [`MOST_ROWS`].
    pub limit: u32,
    /// Order of the groups.
    #[serde(default, skip_serializing_if = "TopGroupSort::is_default")]
    pub group_sort: TopGroupSort,
    /// Turns the exact accounting of CPU time on or off for this session. It stays on while any
    /// session or the program itself wants it. What a session has turned on ends with the
    /// connection of that request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<bool>,
    /// Only microprocesses that are in all of these groups, at most [`MOST_PARTS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<TopPart>,
    /// Asks for the position of a row or group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub find: Option<TopFind>,
    /// Repeats the rates of the session's last query, so that the order of the rows is kept and the
    /// interval of the next query is not cut. For other rows of the same screen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}

/// The microprocesses of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopPart {
    /// Those of [`TopGrouping::WaitsFor`] with this text.
    WaitsFor(String),
    /// Those of [`TopGrouping::Name`] with this text.
    Name(String),
    /// Those of [`TopGrouping::Tree`] with this text, and those below it.
    Tree(String),
    /// Those with this [`TopGroup::stack`].
    Stack(u64),
}

/// A search in the order of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopFind {
    /// The text, without regard to case, as for [`TopQuery::filter`].
    pub text: String,
    /// Position of the first row or group that is examined.
    pub from: u32,
}

/// Sort keys. Numbers sort from the highest down, except IDs and VPs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum TopSort {
    #[default]
    Cpu,
    Id,
    Name,
    State,
    Priority,
    Vp,
    WaitsFor,
    WaitTime,
    Switches,
    Stack,
}

/// Groups of microprocesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopGrouping {
    /// No groups, but rows.
    #[default]
    None,
    /// By the object of the wait, or the state of those that do not wait.
    WaitsFor,
    /// By the part of the name before its last number.
    Name,
    /// As a tree of these parts: `http/conn` is below `http`. Each group has the totals of the
    /// groups below it, which follow it.
    Tree,
    /// By stack: the same calls at the same addresses.
    Stack,
}

/// Orders of groups. Numbers sort from the highest down, and where they are equal by the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopGroupSort {
    /// Number of members.
    #[default]
    Count,
    /// CPU time since the last query.
    Cpu,
    /// Time that the present waits of the members have lasted.
    WaitTime,
    /// The text.
    What,
}

impl TopGroupSort {
    fn is_default(&self) -> bool {
        *self == TopGroupSort::default()
    }
}

/// A part of the answer: first the totals, then rows or groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TopItem {
    /// The totals.
    Totals(TopTotals),
    /// A microprocess.
    Row(Box<TopRow>),
    /// A group.
    Group(TopGroup),
}

/// Totals over the microprocesses that pass the filter, and the virtual processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TopTotals {
    /// Seconds since the last query of the session; `None` for the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<f64>,
    /// Number of living microprocesses.
    pub living: u64,
    /// Number of those that pass the filter.
    pub matching: u64,
    /// Number of groups, if the answer has groups.
    #[serde(default)]
    pub groups: u64,
    /// Numbers of the running, runnable, waiting, blocked and suspended ones of those.
    pub states: [u64; 5],
    /// CPU time of those, in cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Switches per second of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_rate: Option<f64>,
    /// Whether the CPU time is accounted exactly, rather than sampled.
    pub exact: bool,
    /// Whether it was before this query.
    #[serde(default)]
    pub was_exact: bool,
    /// Number of stacks that were examined for groups by stack.
    #[serde(default)]
    pub stacks: u64,
    /// Position of the row or group that the query searched, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
    /// The virtual processors in use.
    #[serde(default)]
    pub vps: Vec<TopVp>,
}

/// Histograms of a virtual processor by powers of two, since its start: entry n has the number of
/// values below 2^n that are in no earlier entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopVp {
    /// Nanoseconds between wake-up and run.
    pub wake_latency: Vec<u64>,
    /// Lengths of the run queue.
    pub queue_lengths: Vec<u64>,
}

/// A microprocess with its counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopRow {
    /// The microprocess.
    #[serde(flatten)]
    pub microprocess: Microprocess,
    /// CPU time since the last query, as a part of one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// CPU time since its start, in nanoseconds.
    pub cpu_ns: u64,
    /// Switches per second since the last query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_rate: Option<f64>,
    /// Switches since its start.
    pub switches: u64,
    /// Preemptions since its start.
    pub preemptions: u32,
    /// Nanoseconds that its present wait has lasted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_ns: Option<u64>,
    /// Finished waits by kind.
    #[serde(default)]
    pub waits: Vec<TopWaits>,
    /// Mean nanoseconds between wake-up and run, over the wake-ups that were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_latency_ns: Option<u64>,
    /// Bytes of its stack in use; unknown while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_bytes: Option<u64>,
}

/// Finished waits of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopWaits {
    /// The kind.
    pub kind: String,
    /// Their number.
    pub count: u64,
    /// Their total time in nanoseconds.
    pub ns: u64,
}

/// Microprocesses with something in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopGroup {
    /// The object of their wait, the beginning of their names, or their stack, one line a frame.
    pub what: String,
    /// Their number.
    pub count: u64,
    /// CPU time since the last query, in cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Nanoseconds that their present waits have lasted, in total.
    pub waiting_ns: u64,
    /// Number of groups above it in the tree.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u16,
    /// Identity of the stack, for groups by stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<u64>,
}

fn is_zero(n: &u16) -> bool {
    *n == 0
}
