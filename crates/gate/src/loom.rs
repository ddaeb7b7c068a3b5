//! The choice between real primitives and those of loom, which explores the models' interleavings.
//!
//! The modules under a model take atomics, cells, locks and waiting from here: those of the lane,
//! the calls of a client and the notifier.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::Mutex;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };

    pub(crate) use kumihimo_runtime::park::{Wait, Waiter, current, park};
    pub(crate) use kumihimo_runtime::{cancel, lock, remote_wake};

    use std::time::Instant;

    /// A release store that concurrent read-modify-writes of the former value precede.
    #[inline(always)]
    pub(crate) fn store_release(word: &AtomicU32, value: u32) {
        word.store(value, Ordering::Release);
    }

    /// Whether a deadline has passed.
    pub(crate) fn has_passed(deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|at| Instant::now() >= at)
    }

    /// std's, with the interface of loom's.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(loom)]
pub(crate) use crate::model::waiting::*;
#[cfg(not(loom))]
pub(crate) use real::*;

/// Whether this build is for the models, whose cells are smaller.
pub(crate) const MODEL: bool = cfg!(loom);
