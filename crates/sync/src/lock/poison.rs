//! Poisoning, as in std: a lock whose guard is dropped by a panic that began while it was held says
//! so to all later lockers. Cancellation unwinds too and poisons alike: the data may be half
//! changed either way.

pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::panicking;

/// The mark itself. Relaxed: it is read and written under the lock that it belongs to, whose
/// ordering covers it; elsewhere (`is_poisoned`) it is a hint.
#[derive(Debug)]
pub(crate) struct Flag(AtomicBool);

/// Whether the holder was panicking already when it locked.
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
