//! State of sticky microprocesses in their records and in the instance (`upcall/sticky.rs`).

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::microprocess::protocol::sticky_parker::StickyParker;

/// A second block makes a microprocess sticky if it follows the first within this many nanoseconds
/// of the microprocess's own run time.
pub(crate) const WITHIN: u64 = 10_000_000;

/// Initial and maximum weight of the blocks outside of the runtime. Each wait in the runtime halves
/// the weight, and at 0 the microprocess returns to a VP. A change of state costs about as much as
/// five waits on the kernel thread cost more than five waits on a VP.
pub(crate) const WEIGHT: u8 = 16;

/// Why a microprocess is sticky.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    /// The microprocess blocked twice within [`WITHIN`].
    Often = 1,
    /// No kernel thread was left to take over its VP, or to hand it one.
    NoSpare = 2,
    /// It has a kernel thread of its own for the rest of its life: see [`crate::upcall::bind`].
    Bound = 3,
    /// It waits for descriptors of its own, with nobody else on its VP.
    EventLoop = 4,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Often => "blocks often in calls unknown to the runtime",
            Reason::NoSpare => "no kernel thread was left",
            Reason::Bound => "has a kernel thread of its own",
            Reason::EventLoop => "waits for events with nobody else on its VP",
        }
    }
}

/// Stickiness of a microprocess. Only the microprocess accesses the cells.
#[derive(Debug)]
pub(crate) struct Sticky {
    pub(crate) parker: StickyParker,
    /// The [`Reason`], or 0 if the microprocess is not sticky. Any thread may read it.
    pub(crate) reason: AtomicU8,
    /// Whether the microprocess keeps its kernel thread for the rest of its life.
    pub(crate) is_bound: Cell<bool>,
    pub(crate) weight: Cell<u8>,
    pub(crate) yields: Cell<u8>,
    /// Whether it has blocked outside of the runtime since it was last on a VP.
    pub(crate) has_blocked: Cell<bool>,
    /// CPU time of its kernel thread at that block or, while sticky, at the time it became sticky.
    pub(crate) since: Cell<u64>,
    /// Voluntary context switches of its kernel thread at the last check.
    pub(crate) switches: Cell<u64>,
}

impl Sticky {
    pub(crate) fn new() -> Sticky {
        Sticky {
            parker: StickyParker::new(),
            reason: AtomicU8::new(0),
            is_bound: Cell::new(false),
            weight: Cell::new(0),
            yields: Cell::new(0),
            has_blocked: Cell::new(false),
            since: Cell::new(0),
            switches: Cell::new(0),
        }
    }

    /// Resets the state for a new life of the record, which binds itself at its start if
    /// `is_bound`.
    pub(crate) fn begin(&self, is_bound: bool) {
        self.has_blocked.set(false);
        self.is_bound.set(is_bound);
    }

    pub(crate) fn set_reason(&self, reason: Reason) {
        self.reason.store(reason as u8, Ordering::Relaxed);
    }

    /// Returns why the microprocess is sticky, if it is. Callable from any thread; the result may
    /// be out of date at once.
    pub(crate) fn reason(&self) -> Option<Reason> {
        match self.reason.load(Ordering::Relaxed) {
            1 => Some(Reason::Often),
            2 => Some(Reason::NoSpare),
            3 => Some(Reason::Bound),
            4 => Some(Reason::EventLoop),
            _ => None,
        }
    }

    /// Records a block outside of the runtime. Returns whether it follows another one within
    /// [`WITHIN`].
    pub(crate) fn blocked_again(&self, now: u64) -> bool {
        // After a move to another kernel thread the difference wraps or is arbitrary, and normally
        // exceeds the limit.
        if self.has_blocked.replace(true) && now.wrapping_sub(self.since.get()) <= WITHIN {
            return true;
        }
        self.since.set(now);
        false
    }

    /// Updates the weight from `now`, the voluntary context switches of the kernel thread. The last
    /// wait in the runtime accounts for one of the switches since the last check. Returns whether
    /// the microprocess still blocks outside of the runtime, and how often it did.
    pub(crate) fn weigh(&self, now: u64) -> (bool, u64) {
        let since = now.saturating_sub(self.switches.replace(now)).saturating_sub(1);
        let weight = (u64::from(self.weight.get() / 2) + since).min(u64::from(WEIGHT)) as u8;
        self.weight.set(weight);
        (weight != 0, since)
    }
}

/// Counters of one runtime.
#[derive(Debug, Default)]
pub(crate) struct StickyCounts {
    /// Number of sticky microprocesses.
    pub(crate) now: AtomicUsize,
    /// Number of these that wait in the runtime.
    pub(crate) waiting: AtomicUsize,
    /// Number of times that a microprocess became sticky, or ceased to be.
    pub(crate) changes: AtomicU64,
    /// Number of sleeps of sticky microprocesses in the kernel outside of the runtime, up to their
    /// last waits in the runtime.
    pub(crate) sleeps: AtomicU64,
    /// The kernel thread of the microprocess that became sticky last, as it blocks often in unknown
    /// calls; 0: none, or none is looked at any more.
    pub(crate) last: AtomicU32,
    /// When the timekeeper looked at such a thread ([`crate::upcall::unknown_wait::Look`]).
    pub(crate) looked_at: AtomicU64,
}

#[cfg(all(test, not(loom)))]
mod tests;
