//! Lock poisoning with the semantics of std. A lock becomes poisoned when its guard is dropped by a
//! panic that began while the lock was held. Cancellation also unwinds and poisons, because it too
//! may leave the data half changed.

pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::panicking;

/// Poison flag of a lock. Relaxed: the flag is read and written under that lock, which orders the
/// accesses; outside the lock (`is_poisoned`) it is a hint.
#[derive(Debug)]
pub(crate) struct Flag(AtomicBool);

/// Whether the holder was already panicking when it locked.
#[derive(Debug)]
pub(crate) struct Guard {
    panicking: bool,
}

impl Flag {
    pub(crate) const fn new() -> Flag {
        Flag(AtomicBool::new(false))
    }

    #[inline]
    pub(crate) fn guard(&self) -> Guard {
        Guard { panicking: panicking() }
    }

    #[inline]
    pub(crate) fn done(&self, guard: &Guard) {
        if !guard.panicking && panicking() {
            self.0.store(true, Relaxed);
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub(crate) fn clear(&self) {
        self.0.store(false, Relaxed);
    }

    #[inline]
    pub(crate) fn result<T>(&self, value: T) -> LockResult<T> {
        if self.get() { Err(PoisonError::new(value)) } else { Ok(value) }
    }
}
