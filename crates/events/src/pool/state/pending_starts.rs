//! Starts of kernel threads that were requested and are not done.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kumihimo_arch::kernel_attributes;

/// The time after which a start counts as delayed. A start takes some 30 us, and longer on a busy
/// machine. One that is merely slow causes needless hand-offs and no harm.
const DELAYED: Duration = Duration::from_millis(20);

/// The number of pending starts, and the time since which none has been done.
#[derive(Debug, Default)]
pub(crate) struct PendingStarts {
    count: AtomicUsize,
    since: AtomicU64,
}

impl PendingStarts {
    /// Notes a request. The caller holds the pool's lock.
    pub(crate) fn begin(&self) {
        if self.count.load(Ordering::Relaxed) == 0 {
            self.since.store(kernel_attributes::coarse_time(), Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a request is done or has failed. The caller holds the pool's lock.
    pub(crate) fn end(&self) {
        self.since.store(kernel_attributes::coarse_time(), Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of pending starts if they are delayed, and 0 if not. The result may be
    /// out of date. Async-signal-safe.
    pub(crate) fn delayed(&self) -> usize {
        let count = self.count.load(Ordering::Relaxed);
        if count == 0 {
            return 0;
        }
        let since = self.since.load(Ordering::Relaxed);
        let time = kernel_attributes::coarse_time().saturating_sub(since);
        if time > DELAYED.as_nanos() as u64 { count } else { 0 }
    }
}
