//! Lost time: the part of a turn during which the kernel ran other threads on the core.
//!
//! The runtime reads the time of day at each switch, because the CPU time of a kernel thread costs
//! a system call. Beside a busy process, the kernel may take the core from a kernel thread for
//! several milliseconds. The microprocess that happened to run would count as one that has used its
//! quantum, and would have to wait behind all others, perhaps with a lock in its hands. So the CPU
//! time is read where a quantum seems to be over, which is seldom, and the lost time is subtracted.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The clocks of a virtual processor. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The kernel thread that carries the virtual processor.
    pub(crate) thread: u32,
    /// Time of the instance's clock.
    pub(crate) now: u64,
    /// Time for which the virtual processor has idled, if it may have since the last reading.
    pub(crate) idle: u64,
    /// CPU time of the kernel thread.
    pub(crate) on_core: u64,
}

/// The last reading of a virtual processor's clocks. Readers that interfere with each other get
/// some part of the turn.
#[derive(Debug, Default)]
pub(crate) struct LostTime {
    /// 0: nothing was read yet.
    thread: AtomicU32,
    now: AtomicU64,
    idle: AtomicU64,
    on_core: AtomicU64,
}

impl LostTime {
    /// Returns the time of the last reading.
    pub(crate) fn last(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Returns for how many nanoseconds of the turn that has lasted for `turn` the kernel thread
    /// had no core, as far as it can be told, and keeps the reading.
    ///
    /// All time lost since the last reading counts as lost by this turn, because it was not read
    /// where turns were short. A thread that computes all the time is read at the end of each of
    /// its quanta, so that it gains one quantum by that at most. Nothing counts as lost after a
    /// change of the kernel thread, whose earlier time is unknown.
    pub(crate) fn of_turn(&self, turn: u64, reading: Reading) -> u64 {
        let is_same = self.thread.swap(reading.thread, Relaxed) == reading.thread;
        let since = |last: &AtomicU64, now: u64| now.saturating_sub(last.swap(now, Relaxed));
        let passed = since(&self.now, reading.now);
        let had_core = since(&self.on_core, reading.on_core) + since(&self.idle, reading.idle);
        if is_same { passed.saturating_sub(had_core).min(turn) } else { 0 }
    }
}

#[cfg(test)]
mod tests;
