//! Counters of a kernel's half.

use std::sync::atomic::Ordering;

use crate::pool::kernel::Kernel;

/// Counters of a [`Kernel`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Kernel threads.
    pub threads: usize,
    /// Of these, those that wait in the pool.
    pub waiting: usize,
    /// Microprocesses that are bound to a kernel thread without a VP.
    pub bound: usize,
    /// VPs that went on under another kernel thread.
    pub hand_offs: u64,
    /// Times that a kernel thread that waits for a VP woke only to poll whether the VP can come.
    pub looks: u64,
    /// Times that a kernel thread was wanted and not to be had.
    pub exhausted: u64,
    /// Sleeps told by the source.
    pub blocked: u64,
    /// Returns told by the source.
    pub unblocked: u64,
    /// Sleeps that the source could not tell.
    pub missed: u64,
    /// Kernel threads asked to be interrupted, and those that could not be.
    pub rung: u64,
    /// See `rung`.
    pub not_rung: u64,
    /// Times that the user scheduler was found not to do its part, and those that were overridden:
    /// see [`crate::watchdog`].
    pub misbehaved: u64,
    /// See `misbehaved`.
    pub overridden: u64,
}

impl Kernel {
    /// A snapshot.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let pool = self.lock();
        let mut counts = Counts {
            threads: pool.threads,
            waiting: pool.waiting,
            bound: self.bound.load(Ordering::Acquire),
            hand_offs: self.hand_offs.load(Ordering::Relaxed),
            looks: self.looks.load(Ordering::Relaxed),
            exhausted: self.exhausted.load(Ordering::Relaxed),
            rung: self.doorbells.rung.load(Ordering::Relaxed),
            not_rung: self.doorbells.failed.load(Ordering::Relaxed),
            misbehaved: self.watchdog.violations.iter().map(|n| n.load(Ordering::Relaxed)).sum(),
            overridden: self.watchdog.overridden.load(Ordering::Acquire),
            ..Counts::default()
        };
        drop(pool);
        for slot in self.slots() {
            counts.blocked = counts.blocked.wrapping_add(slot.blocked.load(Ordering::Relaxed));
            counts.unblocked =
                counts.unblocked.wrapping_add(slot.unblocked.load(Ordering::Relaxed));
            counts.missed = counts.missed.wrapping_add(slot.missed.load(Ordering::Relaxed));
        }
        counts
    }
}
