//! Fatal errors: the shared page contradicts the private records of the kernel's half, and the
//! process aborts.
//!
//! A stray write of this process (with a pinned seat, of another process of the same user) may make
//! two kernel threads carry one VP. Where a VP changes hands, the page is compared with records in
//! private memory. A stray write that agrees with those records cannot be detected.

use std::fmt;

use crate::loom::hint;
use crate::report::stderr_signal_safe::print_signal_safe;

/// Reports a corrupt shared page and aborts. A panic would unwind through code that may touch the
/// VP. Async-signal-safe.
#[cold]
pub(crate) fn fatal(what: fmt::Arguments<'_>) -> ! {
    // Models and unit tests check the text.
    if cfg!(any(test, loom)) {
        panic!("kumihimo: the shared page is corrupt: {what}");
    }
    print_signal_safe(format_args!(
        "kumihimo: the shared page is corrupt: {what}; this process, or another one of the same user, has overwritten it\n"
    ));
    // SAFETY: takes nothing.
    unsafe { libc::abort() }
}

/// A bounded wait for the next few steps of another kernel thread, which may be descheduled: spins,
/// then sleeps.
#[derive(Debug, Default)]
pub(crate) struct BoundedBackoff(u32);

impl BoundedBackoff {
    /// The number of sleeps of a millisecond before the wait fails. While the whole process is
    /// stopped, at most one of them ends.
    const NAPS: u32 = 5000;
    const SPINS: u32 = 1000;
    /// The same bound in nanoseconds, for a thread that polls.
    pub(crate) const NANOSECONDS: u64 = BoundedBackoff::NAPS as u64 * 1_000_000;

    /// Waits for one step. Returns false once the bound is reached. Async-signal-safe.
    pub(crate) fn snooze(&mut self) -> bool {
        self.0 += 1;
        if self.0 < BoundedBackoff::SPINS {
            hint::spin_loop();
        } else {
            let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            // SAFETY: a live timespec; an interrupted sleep is only shorter.
            unsafe { kumihimo_arch::kernel::nanosleep(&time, std::ptr::null_mut()) };
        }
        self.0 < BoundedBackoff::SPINS + BoundedBackoff::NAPS
    }
}
