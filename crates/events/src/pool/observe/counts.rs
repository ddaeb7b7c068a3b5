//! Counters of a kernel's half.

use std::sync::atomic::Ordering;

use crate::pool::kernel::Kernel;

/// Counters of a [`Kernel`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All kernel threads.
    pub threads: usize,
    /// Kernel threads that wait in the pool.
    pub waiting: usize,
    /// Microprocesses that are bound to a kernel thread without a VP.
    pub bound: usize,
    /// Hand-offs of a VP to another kernel thread.
    pub hand_offs: u64,
    /// Times that a kernel thread waiting for a VP woke only to poll whether the VP can come.
    pub looks: u64,
    /// Times that a kernel thread was needed and none could be started.
    pub exhausted: u64,
    /// Sleeps that the source reported.
    pub blocked: u64,
    /// Returns that the source reported.
    pub unblocked: u64,
    /// Sleeps that the source could not report.
    pub missed: u64,
    /// Interruptions of kernel threads that were requested.
    pub rung: u64,
    /// Interruptions of kernel threads that could not be requested.
    pub not_rung: u64,
    /// Violations of the event protocol by the user scheduler: see [`crate::watchdog`].
    pub misbehaved: u64,
    /// Violations that the watchdog overrode.
    pub overridden: u64,
}

impl Kernel {
    /// Takes a snapshot of the counters. Takes the pool's lock.
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
