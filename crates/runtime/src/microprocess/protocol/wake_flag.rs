//! The flag by which the wakers of a future notify its driver ([`crate::wait::future`]). It is
//! separate from the user's park token.

use crate::loom::atomic::{AtomicU32, Ordering};

/// A wake flag. SET while no future is driven.
#[derive(Debug)]
pub(crate) struct WakeFlag(AtomicU32);

const CLEAR: u32 = 0;
const SET: u32 = 1;

impl WakeFlag {
    pub(crate) fn new() -> WakeFlag {
        WakeFlag(AtomicU32::new(SET))
    }

    /// Records that the future may have become ready. The caller wakes the driver afterwards, even
    /// if the flag was set already. A waker of a former life can set the flag, but cannot wake.
    ///
    /// A read-modify-write operation instead of a store: the driver must observe the stores of
    /// every waker, whichever of them it reads from.
    pub(crate) fn set(&self) {
        self.0.swap(SET, Ordering::AcqRel);
    }

    /// Clears the flag, and returns whether it was set since the last call. Called by the driver
    /// before each poll.
    #[must_use]
    pub(crate) fn take(&self) -> bool {
        self.0.swap(CLEAR, Ordering::Acquire) == SET
    }
}

#[cfg(all(test, loom))]
#[path = "wake_flag/tests/loom.rs"]
mod tests;
