//! Timekeeper: a kernel thread of the pool that asks the user scheduler for its
//! [`tick`](UserScheduler::tick), as long as something runs.
//!
//! ```text
//!   NOBODY ── keep_time ───────────────> KEPT
//!   KEPT   ── Tick::Rest(None) ────────> NOBODY
//!   KEPT   ── Tick::Rest(Some) ────────> RESTS
//!   RESTS  ── keep_time, Tick::Again ──> KEPT
//! ```
//! At rest no particular thread has the watch: the thread of the pool that [`Kernel::keep_time`]
//! wakes takes it.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::kernel::Kernel;
use crate::preempt::Means;
use crate::sched::Tick;

/// Nobody runs anything.
const NOBODY: u8 = 0;
/// As `NOBODY`, but the user scheduler wants to be asked again some time.
const RESTS: u8 = 1;
const KEPT: u8 = 2;

/// Whether the time is kept.
#[derive(Debug, Default)]
pub(crate) struct Timekeeper(AtomicU8);

impl Timekeeper {
    fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::Relaxed) == state
    }
}

impl Kernel {
    /// From here the user scheduler is asked for the [`tick`](crate::sched::UserScheduler::tick),
    /// until it says that it may rest. Cheap if it is already.
    pub fn keep_time(&self) {
        // Nobody is to be interrupted, or nobody waits in the pool to do it.
        if self.bells.means() != Means::Off
            && !self.timekeeper.is(KEPT)
            && self.timekeeper.0.swap(KEPT, Ordering::SeqCst) != KEPT
        {
            self.wake_one();
        }
    }

    /// Makes the timekeeper look now, and not when it wanted to look again.
    pub fn hurry(&self) {
        self.wake_one();
    }

    /// Whether the time is kept, and not at rest.
    pub(crate) fn is_time_kept(&self) -> bool {
        self.timekeeper.is(KEPT)
    }

    /// The user scheduler's tick, if anybody wants it.
    pub(crate) fn tick(&self) -> Tick {
        let state = &self.timekeeper.0;
        let Some(scheduler) = self.user().filter(|_| !self.timekeeper.is(NOBODY)) else {
            return Tick::Rest(None);
        };
        let mut tick = scheduler.tick();
        if matches!(tick, Tick::Rest(_)) {
            state.store(RESTS, Ordering::SeqCst);
            // Against `keep_time` in between: it found it kept, and relied on the caller.
            tick = scheduler.tick();
        }
        match tick {
            Tick::Again(_) if !self.timekeeper.is(KEPT) => state.store(KEPT, Ordering::SeqCst),
            Tick::Again(_) | Tick::Rest(Some(_)) => {}
            // Not if somebody wants it again since: he wakes another one.
            Tick::Rest(None) => {
                let _ = state.compare_exchange(RESTS, NOBODY, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
        tick
    }

    /// Whether somebody of the pool has to look by himself.
    pub(crate) fn looks(&self) -> bool {
        self.source.looks() || !self.timekeeper.is(NOBODY)
    }
}
