//! The shared page says what nobody can have written: the process ends.
//!
//! Code of this process that has gone astray (with a pinned seat, another process of the same user)
//! may make two kernel threads believe that they carry one VP. What contradicts the kernel's half's
//! own records, in memory of its own, is found where a VP changes hands. What agrees with them
//! cannot be told from the truth.

use std::fmt;

use crate::say::say;

/// Says what was found, and aborts. Not a panic: what it would unwind through might touch the VP.
/// Async-signal-safe.
#[cold]
pub(crate) fn corrupt(what: fmt::Arguments<'_>) -> ! {
    // A model, or a unit test, looks at the text.
    if cfg!(any(test, loom)) {
        panic!("kumihimo: the shared page is corrupt: {what}");
    }
    say(format_args!(
        "kumihimo: the shared page is corrupt: {what}; something in this process, or another of the same user, wrote into it\n"
    ));
    // SAFETY: takes nothing.
    unsafe { libc::abort() }
}

/// For a kernel thread that waits until another one has taken its next few steps, which may have
/// been descheduled there.
#[derive(Debug, Default)]
pub(crate) struct Patience(u32);

impl Patience {
    /// So many naps of a millisecond, and there is nobody: while the whole process is stopped, one
    /// of them at most goes by.
    const NAPS: u32 = 5000;
    const SPINS: u32 = 1000;
    /// The same patience, for a thread that looks from time to time.
    #[cfg(not(loom))]
    pub(crate) const NANOSECONDS: u64 = Patience::NAPS as u64 * 1_000_000;

    /// Waits for a moment. False: long enough. Async-signal-safe.
    pub(crate) fn moment(&mut self) -> bool {
        self.0 += 1;
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        if self.0 < Patience::SPINS {
            std::hint::spin_loop();
        } else {
            let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            // SAFETY: a live timespec; cut short, it is none the worse.
            unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
        }
        self.0 < Patience::SPINS + Patience::NAPS
    }
}
