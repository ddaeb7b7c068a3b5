//! Busy polling for a single peer: a VP that exchanges requests with one peer outside polls the
//! kernel instead of sleeping.
//!
//! A wake-up on another core costs more than most replies take (20 to 50 us on a virtual machine),
//! and each turn of a conversation pays it twice. A VP that does not sleep saves its peer the
//! wake-up call and itself the wake-up.
//!
//! A VP busy-polls after [`TURNS`] such turns in a row, for at most [`AT_MOST`]. It does so only
//! where polling takes nothing from other threads. So it does not poll while another VP of the
//! address space runs, or while other address spaces are at the board. Nor does it poll in a
//! process with one core, which the peer needs, too. With several peers, nearly every turn brings
//! other work or other events, and so ends the row.

use std::cell::Cell;
use std::time::Duration;

/// Number of turns in a row after which the VP busy-polls.
pub(crate) const TURNS: u32 = 8;
/// Longest busy poll: a slower peer is waited for asleep.
pub(crate) const AT_MOST: Duration = Duration::from_micros(100);
/// Maximum number of switches in a turn: to the microprocess that receives from the peer, and to
/// the one that listens next. Each runs a few times, since a request may take several messages.
const SWITCHES: u64 = 16;
/// Maximum number of descriptor events in a turn.
const EVENTS: u64 = 3;

/// Detector of turns with a single peer. Owner only.
#[derive(Debug, Default)]
pub(crate) struct BusyPoll {
    pub(crate) turns: Cell<u32>,
    switches: Cell<u64>,
    heard: Cell<u64>,
}

impl BusyPoll {
    /// Whether the work before this idle period was a reply to one peer. Called when idling begins,
    /// with the totals of switches and of descriptor events.
    pub(crate) fn is_turn_over(&self, switches: u64, heard: u64) -> bool {
        let ran = switches.wrapping_sub(self.switches.replace(switches));
        let heard = heard.wrapping_sub(self.heard.replace(heard));
        (1..=EVENTS).contains(&heard) && ran <= SWITCHES
    }

    /// Records the end of that idle period, after `nanoseconds`.
    pub(crate) fn note_idle(&self, is_turn_over: bool, nanoseconds: u64) {
        let is_turn = is_turn_over && nanoseconds <= 2 * AT_MOST.as_nanos() as u64;
        self.turns.set(if is_turn { self.turns.get().saturating_add(1) } else { 0 });
    }
}

#[cfg(test)]
mod tests;
