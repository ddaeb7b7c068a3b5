//! The parker of a sticky microprocess, which waits on its kernel thread for a wake-up by the
//! runtime.
//!
//! ```text
//!   the microprocess              a waker (or a resuming thread)
//!   prepare():  AWAKE -> ASLEEP
//!   State: LIVE -> PARKED         State: PARKED -> LIVE
//!   sleep() while ASLEEP          wake():  ASLEEP -> WOKEN, and the kernel thread is woken
//!   WOKEN -> AWAKE                (AWAKE: queued as any other microprocess)
//! ```
//! The microprocess writes ASLEEP before it enters PARKED, and a waker reads it after leaving
//! PARKED. Both transitions are read-modify-write operations on one word
//! ([`crate::microprocess::protocol::state`]), so the waker that moves it out of PARKED observes
//! ASLEEP.

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

    /// Prepares a park. Called by the microprocess.
    pub(crate) fn prepare(&self) {
        self.0.store(ASLEEP, Ordering::Relaxed);
    }

    /// Resets the word. Called by the microprocess, if it did not park, or if no other thread can
    /// wake it any more.
    pub(crate) fn reset(&self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// Whether the microprocess sleeps here. Callable from any thread; the result may be out of
    /// date at once.
    pub(crate) fn is_asleep(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ASLEEP
    }

    /// Wakes the microprocess if it sleeps here. Called by the waker that made it runnable. Returns
    /// false if the microprocess must be queued instead.
    #[inline(always)]
    pub(crate) fn wake(&self) -> bool {
        self.0.load(Ordering::Relaxed) != AWAKE && self.wake_sleeper()
    }

    #[cold]
    fn wake_sleeper(&self) -> bool {
        // Release: publishes the waker's stores. After the store the microprocess may end, so only
        // the address is used.
        self.0.store(WOKEN, Ordering::Release);
        crate::loom::futex_wake_one(&self.0);
        true
    }

    /// Sleeps until woken, and returns true; returns false at the deadline. Called by the
    /// microprocess, which is parked. Blocks the kernel thread.
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
