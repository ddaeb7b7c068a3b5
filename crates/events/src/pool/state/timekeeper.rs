//! The timekeeper's state; its transitions are in `tick`.

use std::sync::atomic::{AtomicU8, Ordering};

/// No microprocess runs.
pub(crate) const STOPPED: u8 = 0;
/// As `STOPPED`, but the user scheduler has requested a later tick.
pub(crate) const RESTING: u8 = 1;
pub(crate) const RUNNING: u8 = 2;

/// The state of the timekeeper.
#[derive(Debug, Default)]
pub(crate) struct Timekeeper(pub(crate) AtomicU8);

impl Timekeeper {
    pub(crate) fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::Relaxed) == state
    }
}
