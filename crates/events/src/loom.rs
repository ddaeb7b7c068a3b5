//! Loom shim: the atomics, hints and futexes of the protocols, real or modelled.
//!
//! Modules with models import these items from here. Under `--cfg loom` they are loom's, which
//! explores every interleaving; otherwise they are those of std, and system calls.

#[cfg(loom)]
pub(crate) use model::{atomic, futex, hint};
#[cfg(not(loom))]
pub(crate) use real::{atomic, futex, hint};

#[cfg(not(loom))]
mod real {
    pub(crate) use std::{hint, sync::atomic};

    /// Sleeps on words that only threads of this process share (futex(2), FUTEX_PRIVATE_FLAG).
    pub(crate) mod futex {
        use std::sync::atomic::AtomicU32;
        use std::time::Duration;

        /// Sleeps while `word` is `expected`. Returns false on a timeout. Async-signal-safe.
        pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> bool {
            let timeout = timeout.map(|t| libc::timespec {
                tv_sec: t.as_secs() as libc::time_t,
                tv_nsec: libc::c_long::from(t.subsec_nanos()),
            });
            let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: a live word; a null timeout or a live timespec.
            let r = unsafe {
                kumihimo_arch::call!(libc::SYS_futex, word.as_ptr(), op, expected, timeout)
            };
            // SAFETY: this thread's errno.
            r == 0 || unsafe { *libc::__errno_location() } != libc::ETIMEDOUT
        }

        /// Wakes one sleeper on `word`. Async-signal-safe.
        pub(crate) fn wake(word: &AtomicU32) {
            let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: FUTEX_WAKE only uses the address as a key; it reads and writes nothing there.
            unsafe { kumihimo_arch::call!(libc::SYS_futex, word.as_ptr(), op, 1) };
        }
    }
}

#[cfg(loom)]
mod model {
    pub(crate) use ::loom::hint;

    pub(crate) mod atomic {
        pub(crate) use ::loom::sync::atomic::*;

        /// A full fence on both sides: loom has no model of membarrier(2).
        pub(crate) fn compiler_fence(order: Ordering) {
            fence(order);
        }
    }

    pub(crate) mod futex {
        use std::time::Duration;

        use super::atomic::AtomicU32;

        /// Yields once, as after a timeout.
        pub(crate) fn wait(_word: &AtomicU32, _expected: u32, _timeout: Option<Duration>) -> bool {
            ::loom::thread::yield_now();
            false
        }

        pub(crate) fn wake(_word: &AtomicU32) {}
    }
}
