//! A microprocess in the pass over all records, and the texts that describe it.

use std::fmt::Write;

use kumihimo_machine::handler::State;
use kumihimo_resource::id::Printed;

use crate::microprocess::record::Ref;
use crate::microprocess::wait_reason::Wait;
use crate::observe::names::label;

/// A microprocess in the pass over all records.
pub(super) struct Seen {
    pub(super) who: Ref,
    pub(super) state: State,
    pub(super) cpu_ns: u64,
    pub(super) switches: u64,
    /// Growth since the last query of the session.
    pub(super) cpu_grown: u64,
    pub(super) switches_grown: u64,
    pub(super) waiting_ns: Option<u64>,
}

impl Seen {
    /// Returns what it waits for, if it waits.
    pub(super) fn waits_for(&self) -> Option<String> {
        self.waiting_ns?;
        self.who.mp.waits_for().as_ref().map(Wait::to_string)
    }

    /// Returns the object of its wait, or its state.
    pub(super) fn wait_or_state(&self) -> String {
        self.waits_for().unwrap_or_else(|| self.state.to_string())
    }

    /// Returns whether one of its texts contains `text`, which is in lower case. `buffer` is
    /// reused.
    pub(super) fn contains(&self, text: &str, buffer: &mut String) -> bool {
        buffer.clear();
        let (id, name) = (Printed(self.who.id()), label(self.who.mp));
        let _ = write!(buffer, "{id}\n{name}\n{}\n", self.state);
        if let Some(what) = self.waits_for() {
            buffer.push_str(&what);
        }
        buffer.to_lowercase().contains(text)
    }
}
