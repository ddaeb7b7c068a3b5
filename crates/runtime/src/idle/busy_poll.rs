//! Busy polling for a single peer: a VP that exchanges requests with one peer outside polls the
//! kernel instead of sleeping.
//!
//! To be woken on another core costs more than most answers take, where the machine is virtual 20
//! to 50 us, and each turn pays it twice. A VP that does not sleep saves the peer the call and
//! itself the waking up. It does so once it has taken [`TURNS`] turns that were such in a row, no
//! longer than [`AT_MOST`], and not where that could take from others: while another VP of the
//! address space runs, while other address spaces are at the board, and where the process has one
//! core, which is the peer's too. With several peers something else is there to be run, or to be
//! heard, in nearly each turn.

use std::cell::Cell;
use std::time::Duration;

/// Turns in a row before it does not sleep.
pub(crate) const TURNS: u32 = 8;
/// A peer that takes longer is not waited for so.
pub(crate) const AT_MOST: Duration = Duration::from_micros(100);
/// In a turn it ran so many at most: the microprocess that hears the peer, and the one that listens
/// next, a few times over, since a request may take several messages.
const SWITCHES: u64 = 16;
/// And heard so many.
const EVENTS: u64 = 3;

/// By the owner.
#[derive(Debug, Default)]
pub(crate) struct BusyPoll {
    pub(crate) turns: Cell<u32>,
    switches: Cell<u64>,
    heard: Cell<u64>,
}

impl BusyPoll {
    /// Idling begins, after `switches` and `heard` events in all. Whether what lies behind was an
    /// answer to one peer.
    pub(crate) fn is_turn_over(&self, switches: u64, heard: u64) -> bool {
        let ran = switches.wrapping_sub(self.switches.replace(switches));
        let heard = heard.wrapping_sub(self.heard.replace(heard));
        (1..=EVENTS).contains(&heard) && ran <= SWITCHES
    }

    /// Idling that began so has ended after `nanoseconds`.
    pub(crate) fn note_idle(&self, is_turn_over: bool, nanoseconds: u64) {
        let is_turn = is_turn_over && nanoseconds <= 2 * AT_MOST.as_nanos() as u64;
        self.turns.set(if is_turn { self.turns.get().saturating_add(1) } else { 0 });
    }
}

#[cfg(test)]
mod tests;
