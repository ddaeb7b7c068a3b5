//! State that all shards share: memory accounting, and the append log.

use kumihimo::sync::OnceLock;
use kumihimo::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::log::Log;

/// Accounting of memory and expiry, and the append log.
#[derive(Default)]
pub struct Shared {
    memory: AtomicUsize,
    peak: AtomicUsize,
    /// Number of keys that have expired.
    pub expired: AtomicU64,
    /// The append log. Unset until its contents have been replayed.
    pub log: OnceLock<Log>,
}

impl Shared {
    /// Replaces `less` bytes by `more` in the accounting.
    pub fn count(&self, less: usize, more: usize) {
        if more >= less {
            let now = self.memory.fetch_add(more - less, Relaxed) + (more - less);
            if now > self.peak.load(Relaxed) {
                self.peak.fetch_max(now, Relaxed);
            }
        } else {
            self.memory.fetch_sub(less - more, Relaxed);
        }
    }

    /// Bytes in use by keys, values and tables.
    pub fn memory(&self) -> usize {
        self.memory.load(Relaxed)
    }

    /// Peak of [`memory`](Shared::memory).
    pub fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }
}
