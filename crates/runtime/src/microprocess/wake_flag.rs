//! The word by which the wakers of a future notify its driver ([`crate::wait::future`]), apart from
//! the user's park token.

use crate::loom::atomic::{AtomicU32, Ordering};

/// CALLED where nobody drives a future.
#[derive(Debug)]
pub(crate) struct WakeFlag(AtomicU32);

const CLEAR: u32 = 0;
const SET: u32 = 1;

impl WakeFlag {
    pub(crate) fn new() -> WakeFlag {
        WakeFlag(AtomicU32::new(SET))
    }

    /// The future may have become ready: the caller wakes its driver afterwards, also if others
    /// have called before. A waker of a former life can call, and cannot wake.
    ///
    /// A read-modify-write, and not a store: the driver has to see what each of several callers did
    /// before, whosever call it finds.
    pub(crate) fn set(&self) {
        self.0.swap(SET, Ordering::AcqRel);
    }

    /// By the driver, before each poll: whether there was a call since the last time.
    #[must_use]
    pub(crate) fn take(&self) -> bool {
        self.0.swap(CLEAR, Ordering::Acquire) == SET
    }
}

#[cfg(all(test, loom))]
#[path = "wake_flag/tests/loom.rs"]
mod tests;
