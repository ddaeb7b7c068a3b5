//! What the kernel keeps per kernel thread, for programs whose threads are microprocesses.
//!
//! A program calls the C library to change the signal mask, the nice value or the credentials of
//! "the calling thread". The kernel changes the kernel thread, which also runs other
//! microprocesses. So this crate replaces these functions of the C library (`glibc/interpose`),
//! and each first asks the runtime through [`ThreadAttributes`].

use std::sync::OnceLock;

/// The runtime's side of the replaced functions. All methods are async-signal-safe and do not
/// allocate, as the functions that call them. `None` means that the caller is no microprocess: the
/// kernel thread's own attribute is meant.
pub trait ThreadAttributes: Sync {
    /// Whether the caller is the start routine that std gives its threads, which a microprocess
    /// runs ([`crate::thread_start`]), before the routine calls the thread's closure. What std asks
    /// for there belongs to a kernel thread of its own.
    fn is_starting(&self) -> bool;

    /// Changes the signal mask of the calling microprocess by `change`, and returns the one before.
    /// Bit `n - 1` is signal `n`.
    fn signal_mask(&self, change: &dyn Fn(u64) -> u64) -> Option<u64>;

    /// Reports that a kernel thread outside of the runtime has changed its mask to `mask`.
    fn foreign_mask(&self, mask: u64);

    /// Sets the alternate signal stack of the calling microprocess if `new` is given. Returns the
    /// one before, or an error number.
    fn signal_stack(&self, new: Option<libc::stack_t>) -> Option<Result<libc::stack_t, i32>>;

    /// Sets the nice value of the calling microprocess if `new` is given. Returns the value that
    /// then holds, or an error number.
    fn nice(&self, new: Option<i32>) -> Option<Result<i32, i32>>;

    /// Sets the timer slack in nanoseconds if `new` is given; 0 means the default. Returns the
    /// value that then holds.
    fn timer_slack(&self, new: Option<u64>) -> Option<u64>;

    /// Reports that a kernel thread outside of the runtime has changed its nice value or its timer
    /// slack.
    fn foreign_change(&self);

    /// Returns the CPU time that the calling microprocess has used, in nanoseconds.
    fn cpu_time(&self) -> Option<u64>;

    /// Returns the CPU time, in nanoseconds, of the microprocess whose slot contains the thread
    /// block `block`, on kernel threads that it has left. 0 for one that has not read its clock.
    fn cpu_time_of(&self, block: usize) -> Option<u64>;

    /// Sets the name of the microprocess whose slot contains the thread block `block`, or of the
    /// caller for 0. Returns false for a block that is no living microprocess's.
    fn set_name(&self, block: usize, name: &[u8]) -> Option<bool>;

    /// Copies the name of the microprocess, as for `set_name`, into `out`, and returns its length.
    fn name(&self, block: usize, out: &mut [u8; 16]) -> Option<usize>;

    /// Gives the calling microprocess a kernel thread of its own for the rest of its life. The
    /// caller is about to change what the runtime cannot reset. Fails with an error number if no
    /// kernel thread is left.
    fn bind(&self) -> Option<Result<(), i32>>;
}

static RUNTIME: OnceLock<&'static dyn ThreadAttributes> = OnceLock::new();

/// Registers the runtime's side. Only the first registration in a process takes effect.
pub fn register(runtime: &'static dyn ThreadAttributes) {
    let _ = RUNTIME.set(runtime);
}

/// Returns the runtime's side, if a runtime has ever begun in this process.
#[cfg_attr(not(all(target_arch = "x86_64", target_env = "gnu")), allow(dead_code))]
pub fn runtime() -> Option<&'static dyn ThreadAttributes> {
    RUNTIME.get().copied()
}
