//! futex(2), private, with an absolute monotonic deadline. Blocks the kernel thread.

use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// Sleeps while `*word == expected`. Returns on a wake-up, at the deadline, on a signal or on a
/// mismatch, so the caller must check again.
pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) {
    let timeout = deadline.map(|d| timespec(d.saturating_duration_since(Instant::now())));
    let ts = timeout.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
    // SAFETY: `word` is a live, aligned u32 and `ts` is null or points to a live timespec;
    // FUTEX_WAIT takes no other pointer.
    unsafe {
        kumihimo_arch::call!(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            ts,
        );
    }
}

/// Sleeps until `deadline` or until a signal, so the caller must check again. `std::thread::sleep`
/// instead sleeps for the rest of its time after a signal. The kernel adds its timer slack each
/// time, so that call never ends if signals arrive more often than that (nanosleep(2), "can be
/// problematic").
pub(crate) fn nap(deadline: Instant) {
    wait(&AtomicU32::new(0), 0, Some(deadline));
}

/// Wakes one sleeper of [`wait`].
pub(crate) fn wake_one(word: &AtomicU32) {
    wake(word, 1);
}

fn wake(word: &AtomicU32, n: i32) {
    // SAFETY: FUTEX_WAKE uses the address only as a key; it neither reads nor writes there.
    unsafe {
        kumihimo_arch::call!(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            n,
        );
    }
}

pub(crate) fn timespec(d: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(d.subsec_nanos()),
    }
}
