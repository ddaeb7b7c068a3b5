//! The signal mask of the calling kernel thread, by the system call itself.
//!
//! The runtime uses this module for its own kernel threads. A program's pthread_sigmask(3) changes
//! the mask of the microprocess that calls it instead ([`crate::thread_attributes`]).

use std::cell::Cell;

use crate::system_call;

/// Size in bytes of the kernel's signal set (`_NSIG / 8`); sigprocmask(2).
const BYTES: usize = 8;

/// All signals but the C library's internal ones, 32 and 33 (nptl(7)): without these,
/// pthread_cancel and the set*id functions would wait forever.
pub const ALL: u64 = !(1 << 31 | 1 << 32);

/// SIGBUS is never blocked while the runtime's code runs on a kernel thread: an access to a board
/// that another process truncated raises it, and the kernel ends a process that blocks it then.
pub const NEVER_BLOCKED: u64 = 1 << (libc::SIGBUS - 1);

/// The signals that [`set`] can block. A mask in which the program has asked for more differs in
/// the others from the one that the kernel thread has.
pub const BLOCKABLE: u64 =
    ALL & !(NEVER_BLOCKED | 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));

thread_local! {
    /// Number of calls of [`while_blocked`] that the caller is in.
    static BLOCKED: Cell<u32> = const { Cell::new(0) };
}

fn change(how: libc::c_int, mask: Option<u64>) -> u64 {
    let mask = mask.map(|mask| mask & !NEVER_BLOCKED);
    let (mut before, mask) = (0u64, mask.as_ref().map_or(std::ptr::null(), std::ptr::from_ref));
    // SAFETY: two live words, or null. With these arguments the call cannot fail, unless a filter
    // refuses it; the mask is then unchanged.
    unsafe {
        system_call(
            libc::SYS_rt_sigprocmask,
            [how as usize, mask.addr(), (&raw mut before).expose_provenance(), BYTES, 0, 0],
        )
    };
    before
}

/// Returns the mask. Bit `n - 1` is signal `n`.
#[must_use]
pub fn current() -> u64 {
    change(libc::SIG_BLOCK, None)
}

/// Sets the mask and returns the previous one.
pub fn set(mask: u64) -> u64 {
    change(libc::SIG_SETMASK, Some(mask))
}

/// Starts a kernel thread of the runtime, which has all signals blocked from its first instruction
/// on: it must handle no signal of the program.
///
/// # Errors
/// As `std::thread::Builder::spawn`.
pub fn spawn_blocked<T: Send + 'static>(
    builder: std::thread::Builder,
    f: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<T>> {
    while_blocked(|| builder.spawn(f))
}

/// Runs `f` with all signals blocked. A thread that `f` starts begins with all signals blocked.
///
/// Signal 33 stays open: pthread_create(3) waits for a lock that the C library holds in setuid(2),
/// while it waits for each thread to handle that signal.
pub fn while_blocked<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(u64);
    impl Drop for Restore {
        fn drop(&mut self) {
            set(self.0);
            BLOCKED.set(BLOCKED.get() - 1);
        }
    }
    BLOCKED.set(BLOCKED.get() + 1);
    let _restore = Restore(set(ALL));
    f()
}

/// Whether the caller is in [`while_blocked`]: a thread that it starts is a kernel thread of the
/// runtime.
#[must_use]
pub fn is_blocked() -> bool {
    BLOCKED.get() != 0
}
