//! Timekeeper: the kernel thread of the pool that calls the user scheduler's
//! [`tick`](UserScheduler::tick) while any microprocess runs.
//!
//! ```text
//!   STOPPED ── start_timekeeper ──────────────> RUNNING
//!   RUNNING ── Tick::Rest(None) ──────────────> STOPPED
//!   RUNNING ── Tick::Rest(Some) ──────────────> RESTING
//!   RESTING ── start_timekeeper, Tick::Again ─> RUNNING
//! ```
//! At rest no particular thread runs the tick: the thread of the pool that
//! [`Kernel::start_timekeeper`] wakes does.

use std::sync::atomic::Ordering;

use crate::pool::kernel::Kernel;
use crate::pool::sched::Tick;
use crate::pool::timekeeper::{RESTING, RUNNING, STOPPED};
use crate::preempt::doorbell::Means;

impl Kernel {
    /// Starts the timekeeper, which calls [`tick`](crate::sched::UserScheduler::tick) until that
    /// returns [`Tick::Rest`]. Cheap if the timekeeper runs already.
    pub fn start_timekeeper(&self) {
        // Without preemption there is no quantum to end.
        if self.doorbells.means() != Means::Off
            && !self.timekeeper.is(RUNNING)
            && self.timekeeper.0.swap(RUNNING, Ordering::SeqCst) != RUNNING
        {
            self.wake_one();
        }
    }

    /// Makes the timekeeper call the tick now instead of at the time that the last tick returned.
    pub fn wake_timekeeper(&self) {
        self.wake_one();
    }

    /// Returns whether the timekeeper runs and is not at rest.
    pub(crate) fn is_timekeeper_running(&self) -> bool {
        self.timekeeper.is(RUNNING)
    }

    /// Calls the user scheduler's tick, unless the timekeeper is stopped.
    pub(crate) fn tick(&self) -> Tick {
        let state = &self.timekeeper.0;
        let Some(scheduler) = self.user().filter(|_| !self.timekeeper.is(STOPPED)) else {
            return Tick::Rest(None);
        };
        let mut tick = scheduler.tick();
        if matches!(tick, Tick::Rest(_)) {
            state.store(RESTING, Ordering::SeqCst);
            // A concurrent `start_timekeeper` that still found the timekeeper running relied on the
            // caller: the second tick handles that case.
            tick = scheduler.tick();
        }
        match tick {
            Tick::Again(_) if !self.timekeeper.is(RUNNING) => {
                state.store(RUNNING, Ordering::SeqCst)
            }
            Tick::Again(_) | Tick::Rest(Some(_)) => {}
            // Fails if the timekeeper was started since: the starting thread wakes another thread.
            Tick::Rest(None) => {
                let _ =
                    state.compare_exchange(RESTING, STOPPED, Ordering::SeqCst, Ordering::Relaxed);
            }
        }
        tick
    }

    /// Returns whether a thread of the pool must poll the source or run the tick.
    pub(crate) fn needs_poll(&self) -> bool {
        self.source.needs_poll() || !self.timekeeper.is(STOPPED)
    }
}
