//! Timers of VPs that have retired, on their way to the VP that serves them from then on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::idle::timer::{TimerEntry, Timers};
use crate::kernel_thread::no_events::lock;

/// Timers on their way. The sender wakes the receiving VP after [`send`](MovedTimers::send).
#[derive(Default)]
pub(crate) struct MovedTimers {
    entries: Mutex<Vec<TimerEntry>>,
    is_any: AtomicBool,
}

impl MovedTimers {
    pub(crate) fn send(&self, entries: Vec<TimerEntry>) {
        let mut all = lock(&self.entries);
        all.extend(entries);
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Moves all of them to `timers`. Costs one load if there are none.
    pub(crate) fn receive(&self, timers: &mut Timers) {
        if self.is_any.load(Ordering::Relaxed) {
            let mut all = lock(&self.entries);
            self.is_any.store(false, Ordering::Relaxed);
            timers.adopt(all.drain(..));
        }
    }
}
