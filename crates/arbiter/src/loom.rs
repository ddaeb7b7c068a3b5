//! Operations that the models in `row/tests/loom.rs` and `slot/tests/loom.rs` replace: atomics,
//! fences and futexes.
//!
//! Code under a model imports them only from here: the real ones, or loom's under `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use ::loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Futex operations: futex(2).
#[cfg(not(loom))]
pub(crate) mod futex {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    /// Waits while `word` equals `expected`, for at most `at_most`. May return early.
    pub(crate) fn wait(word: &AtomicU32, expected: u32, at_most: Option<Duration>, private: bool) {
        let wait = at_most.map(|d| libc::timespec {
            tv_sec: d.as_secs() as i64,
            tv_nsec: i64::from(d.subsec_nanos()),
        });
        let wait = wait.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let operation = libc::FUTEX_WAIT | flag(private);
        // SAFETY: a live word, and a live timespec or null. Errors are ignored, because callers
        // allow for an early return.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, wait, 0, 0) };
    }

    /// Wakes one thread that waits on `word`.
    pub(crate) fn wake(word: &AtomicU32, private: bool) {
        let operation = libc::FUTEX_WAKE | flag(private);
        // SAFETY: a live word.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1, 0, 0, 0) };
    }

    fn flag(private: bool) -> i32 {
        if private { libc::FUTEX_PRIVATE_FLAG } else { 0 }
    }
}

/// Stand-in under loom: each model ends before the system call.
#[cfg(loom)]
pub(crate) mod futex {
    use std::time::Duration;

    use super::AtomicU32;

    pub(crate) fn wait(_: &AtomicU32, _: u32, _: Option<Duration>, _: bool) {
        unreachable!("no model sleeps")
    }

    pub(crate) fn wake(_: &AtomicU32, _: bool) {
        unreachable!("no model sleeps")
    }
}
