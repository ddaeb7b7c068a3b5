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
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::idle::remote_wake;
use crate::microprocess::record::Mp;
use crate::process::board;
use crate::scheduler::vp::Vp;

/// Turns in a row before it does not sleep.
const TURNS: u32 = 8;
/// A peer that takes longer is not waited for so.
const AT_MOST: Duration = Duration::from_micros(100);
/// In a turn it ran so many at most: the microprocess that hears the peer, and the one that listens
/// next, a few times over, since a request may take several messages.
const SWITCHES: u64 = 16;
/// And heard so many.
const EVENTS: u64 = 3;

/// By the owner.
#[derive(Debug, Default)]
pub(crate) struct BusyPoll {
    turns: Cell<u32>,
    switches: Cell<u64>,
    heard: Cell<u64>,
}

impl BusyPoll {
    /// Idling begins, after `switches` and `heard` events in all. Whether what lies behind was an
    /// answer to one peer.
    fn is_turn_over(&self, switches: u64, heard: u64) -> bool {
        let ran = switches.wrapping_sub(self.switches.replace(switches));
        let heard = heard.wrapping_sub(self.heard.replace(heard));
        (1..=EVENTS).contains(&heard) && ran <= SWITCHES
    }

    /// Idling that began so has ended after `nanoseconds`.
    fn note_idle(&self, is_turn_over: bool, nanoseconds: u64) {
        let is_turn = is_turn_over && nanoseconds <= 2 * AT_MOST.as_nanos() as u64;
        self.turns.set(if is_turn { self.turns.get().saturating_add(1) } else { 0 });
    }
}

impl Vp {
    /// The VP begins to idle.
    pub(crate) fn is_peer_turn(&self) -> bool {
        self.busy_poll
            .is_turn_over(self.counters.switches.load(Ordering::Relaxed), self.poller.heard())
    }

    /// It has idled so long, since [`is_peer_turn`](Vp::is_peer_turn) said that.
    pub(crate) fn note_peer_turn(&self, is_turn_over: bool, nanoseconds: u64) {
        self.busy_poll.note_idle(is_turn_over, nanoseconds);
    }

    /// Whether it waits for one peer, and nobody else wants the core.
    pub(crate) fn should_busy_poll(&self) -> bool {
        self.busy_poll.turns.get() >= TURNS
            && self.instance().all_idle()
            && remote_wake::cores().len() > 1
            && !board::shares_cores()
    }

    /// What came from it, and the time. May return nothing.
    #[cold]
    pub(crate) fn busy_poll_peer(&self, since: u64) -> (Option<&'static Mp>, u64) {
        let found =
            self.look_until(since + AT_MOST.as_nanos() as u64, || self.poller.poll_ready(false));
        if found.0.is_none() {
            self.busy_poll.turns.set(0);
        }
        found
    }
}

#[cfg(test)]
mod tests;
