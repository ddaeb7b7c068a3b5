//! A lock that may be taken on any stack, under any TLS block, and across fork.
//!
//! It knows no owner (a std mutex's poison flag would ask thread-local state), and the fork handlers can hold it over
//! a fork and release it in the child. Held for tens of nanoseconds, or for the length of one `mmap`.

use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Lock(AtomicBool);

impl Lock {
    pub(crate) const fn new() -> Self {
        Lock(AtomicBool::new(false))
    }

    pub(crate) fn lock(&self) {
        let mut spins = 0;
        // Acquire pairs with the Release of `unlock`.
        while self.0.swap(true, Ordering::Acquire) {
            while self.0.load(Ordering::Relaxed) {
                spins += 1;
                if spins < 100 {
                    std::hint::spin_loop();
                } else {
                    // SAFETY: sched_yield has no preconditions. The holder may be off its core.
                    unsafe { libc::sched_yield() };
                }
            }
        }
    }

    pub(crate) fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Runs `f` with the lock held; releases it also when `f` unwinds.
    pub(crate) fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Held<'a>(&'a Lock);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.unlock();
            }
        }
        self.lock();
        let _held = Held(self);
        f()
    }
}
