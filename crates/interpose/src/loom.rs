//! Shim that selects the real primitives or those of the models. The lot and the locks on it take
//! cells, atomics, parking and the C library's functions from here.

#[cfg(not(loom))]
mod real {
    pub(crate) use crate::real::libc;
    pub(crate) use kumihimo_runtime::park;
    pub(crate) use kumihimo_runtime::{Locked, NoEvents, lock};
    pub(crate) use std::cell::Cell;
    pub(crate) use std::sync::{Mutex, MutexGuard, TryLockError, atomic};
    pub(crate) use std::time::Instant;

    /// Orders an instruction with a LOCK prefix before later loads, which x86 does without a fence
    /// (Intel SDM 3A, 9.2.3.9). Only the compiler needs an order. In the models it is a fence; the
    /// model's C library has its own after each such instruction.
    #[inline(always)]
    pub(crate) fn after_lock_prefix() {
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }

    pub(crate) use std::sync::atomic::compiler_fence;

    /// Acquires a lock of the runtime if it is free.
    pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<(MutexGuard<'_, T>, NoEvents)> {
        let events = NoEvents::new();
        match mutex.try_lock() {
            Ok(guard) => Some((guard, events)),
            Err(TryLockError::Poisoned(poisoned)) => Some((poisoned.into_inner(), events)),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Reads a word of the program.
    ///
    /// # Safety
    /// `at` is readable.
    #[inline(always)]
    pub(crate) unsafe fn read(at: *const u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { at.read_volatile() }
    }
}
#[cfg(not(loom))]
pub(crate) use real::*;

#[cfg(loom)]
pub(crate) use crate::model::primitives::*;
