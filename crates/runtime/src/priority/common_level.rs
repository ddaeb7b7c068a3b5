//! The common level: the level of all microprocesses so far, while there is only one.

use std::sync::atomic::{AtomicU8, Ordering};

/// No level was used yet.
pub(crate) const NO_LEVEL: u8 = 0xfe;

/// More than one level was used; final.
pub(crate) const LEVELS: u8 = 0xff;

/// The common level, [`NO_LEVEL`] or [`LEVELS`].
#[derive(Debug)]
pub(crate) struct CommonLevel(pub(crate) AtomicU8);

impl CommonLevel {
    pub(crate) const fn new() -> CommonLevel {
        CommonLevel(AtomicU8::new(NO_LEVEL))
    }

    /// Records that a microprocess of `level` exists. Returns true if that makes levels differ for
    /// the first time.
    #[inline]
    pub(crate) fn diverges_at(&self, level: u8) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        if seen == level || seen == LEVELS {
            return false;
        }
        match self.0.compare_exchange(NO_LEVEL, level, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => false,
            Err(now) if now == level => false,
            // SeqCst: pairs with `sticky::begin`.
            Err(_) => self.0.swap(LEVELS, Ordering::SeqCst) != LEVELS,
        }
    }
}
