//! What a record and an instance keep of sticky microprocesses (`upcall/sticky.rs`).

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::microprocess::sticky_parker::StickyParker;

/// A second block makes it sticky if it comes within so many nanoseconds of its own run time.
pub(crate) const WITHIN: u64 = 10_000_000;

/// The weight of its blocks elsewhere when it becomes sticky, and the most that it has. Halved at
/// each wait in the runtime; at 0 it goes back. A change costs about what five waits on the kernel
/// thread cost more than on a VP.
pub(crate) const WEIGHT: u8 = 16;

/// Why a microprocess is sticky.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    /// It blocked twice within [`WITHIN`].
    Often = 1,
    /// No kernel thread was left that could have taken its VP over, or handed it one.
    NoSpare = 2,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Often => "blocks often in calls that the runtime does not know",
            Reason::NoSpare => "no kernel thread was left",
        }
    }
}

/// What is kept of a microprocess. Cells are its own.
#[derive(Debug)]
pub(crate) struct Sticky {
    pub(crate) parker: StickyParker,
    /// [`Reason`]; 0: it is not. Anybody may read.
    pub(crate) reason: AtomicU8,
    pub(crate) weight: Cell<u8>,
    pub(crate) yields: Cell<u8>,
    /// It has blocked elsewhere since it was on a VP.
    pub(crate) has_blocked: Cell<bool>,
    /// CPU time of its kernel thread: at that block; while it is sticky, when it became so.
    pub(crate) since: Cell<u64>,
    /// Voluntary switches of its kernel thread as of the last look.
    pub(crate) switches: Cell<u64>,
}

impl Sticky {
    pub(crate) fn new() -> Sticky {
        Sticky {
            parker: StickyParker::new(),
            reason: AtomicU8::new(0),
            weight: Cell::new(0),
            yields: Cell::new(0),
            has_blocked: Cell::new(false),
            since: Cell::new(0),
            switches: Cell::new(0),
        }
    }

    /// Another life begins.
    pub(crate) fn begin(&self) {
        self.has_blocked.set(false);
    }

    /// Why it is sticky, if it is. By anybody; out of date at once.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self.reason.load(Ordering::Relaxed) {
            1 => Some(Reason::Often),
            2 => Some(Reason::NoSpare),
            _ => None,
        }
    }

    /// It has blocked elsewhere. True: not for the first time lately.
    pub(crate) fn blocked_again(&self, now: u64) -> bool {
        // On another kernel thread since, it is as if that was long ago.
        if self.has_blocked.replace(true) && now.wrapping_sub(self.since.get()) <= WITHIN {
            return true;
        }
        self.since.set(now);
        false
    }

    /// What it did since the last look: so many voluntary switches of its kernel thread, of which
    /// the last wait in the runtime was one. Whether it blocks elsewhere still; and how often it
    /// did.
    pub(crate) fn weigh(&self, now: u64) -> (bool, u64) {
        let since = now.saturating_sub(self.switches.replace(now)).saturating_sub(1);
        let weight = (u64::from(self.weight.get() / 2) + since).min(u64::from(WEIGHT)) as u8;
        self.weight.set(weight);
        (weight != 0, since)
    }
}

/// Of one runtime.
#[derive(Debug, Default)]
pub(crate) struct StickyCounts {
    /// Those that are sticky.
    pub(crate) now: AtomicUsize,
    /// Of these, those that wait in the runtime.
    pub(crate) waiting: AtomicUsize,
    /// Times that one became sticky, or ceased to be.
    pub(crate) changes: AtomicU64,
    /// Times that those that are sticky slept in the kernel elsewhere than in the runtime, as of
    /// their last waits there.
    pub(crate) sleeps: AtomicU64,
}

#[cfg(test)]
mod tests;
