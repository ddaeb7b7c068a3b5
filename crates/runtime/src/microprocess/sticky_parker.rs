//! The place where a sticky microprocess waits for a wake-up by the runtime, on its kernel thread.
//!
//! ```text
//!   its microprocess              a waker (or a resuming thread)
//!   prepare():  AWAKE -> ASLEEP
//!   State: LIVE -> PARKED         State: PARKED -> LIVE
//!   sleep() while ASLEEP          wake():  ASLEEP -> WOKEN, and the kernel thread is woken
//!   WOKEN -> AWAKE                (AWAKE: it is queued, as any other)
//! ```
//! PARKED is reached after ASLEEP was written, and left before ASLEEP is read. Both sides access it
//! by read-modify-write operations on one word ([`crate::microprocess::state`]), so the waker that
//! takes it out of PARKED sees that it sleeps here.

use std::time::Instant;

use crate::loom::atomic::{AtomicU32, Ordering};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const WOKEN: u32 = 2;

#[derive(Debug)]
pub(crate) struct StickyParker(AtomicU32);

impl StickyParker {
    pub(crate) fn new() -> StickyParker {
        StickyParker(AtomicU32::new(AWAKE))
    }

    /// By its microprocess, about to park.
    pub(crate) fn prepare(&self) {
        self.0.store(ASLEEP, Ordering::Relaxed);
    }

    /// By its microprocess, which did not park, or is nobody else's to wake any more.
    pub(crate) fn reset(&self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// By anybody; out of date at once.
    pub(crate) fn is_asleep(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ASLEEP
    }

    /// Called by the waker that made it runnable. Returns true if it slept here and continues on
    /// its kernel thread, false if it has to be queued.
    #[inline(always)]
    pub(crate) fn wake(&self) -> bool {
        self.0.load(Ordering::Relaxed) != AWAKE && self.wake_sleeper()
    }

    #[cold]
    fn wake_sleeper(&self) -> bool {
        // Release: what the waker did. After this the microprocess may end: only the address is
        // used.
        self.0.store(WOKEN, Ordering::Release);
        crate::loom::futex_wake_one(&self.0);
        true
    }

    /// By its microprocess, parked: true once it was woken; false when the time was over. Blocks
    /// the kernel thread.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> bool {
        loop {
            if self.0.load(Ordering::Acquire) == WOKEN {
                self.reset();
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            crate::loom::futex_wait(&self.0, ASLEEP, deadline);
        }
    }
}

#[cfg(all(test, loom))]
#[path = "sticky_parker/tests/loom.rs"]
mod tests;
