//! Progress of commits.

use std::time::Instant;

/// Progress, guarded by the lock of commits.
pub struct Commits {
    /// Last transaction that is on the disk.
    pub(crate) done: u64,
    pub(crate) last: Instant,
}

impl Default for Commits {
    fn default() -> Commits {
        Commits { done: 0, last: Instant::now() }
    }
}
