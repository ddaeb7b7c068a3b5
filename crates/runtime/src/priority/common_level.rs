//! The level that all microprocesses have had so far, as long as it is one and the same.

use std::sync::atomic::{AtomicU8, Ordering};

/// No level was used yet.
pub(crate) const NO_LEVEL: u8 = 0xfe;

/// More than one was: for good.
pub(crate) const LEVELS: u8 = 0xff;

/// The level that all have, as far as known.
#[derive(Debug)]
pub(crate) struct CommonLevel(pub(crate) AtomicU8);

impl CommonLevel {
    pub(crate) const fn new() -> CommonLevel {
        CommonLevel(AtomicU8::new(NO_LEVEL))
    }

    /// Something of this level is there. True: by that levels differ from here on.
    #[inline]
    pub(crate) fn diverges_at(&self, level: u8) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        if seen == level || seen == LEVELS {
            return false;
        }
        match self.0.compare_exchange(NO_LEVEL, level, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => false,
            Err(now) if now == level => false,
            // SeqCst: see `sticky::begin`.
            Err(_) => self.0.swap(LEVELS, Ordering::SeqCst) != LEVELS,
        }
    }
}
