//! The signal mask of a thread.
//!
//! The kernel's mask follows the microprocess: the runtime sets it on the kernel thread at a
//! switch. The word here is for the threads that send signals.

use std::sync::atomic::Ordering;

use kumihimo_arch::thread_attributes;
use libc::sigset_t;

use crate::real::libc;
use crate::signal::thread::Signals;

/// The mask of the calling thread, by asking the kernel or the runtime.
pub(super) fn of_caller() -> u64 {
    if let Some(runtime) = thread_attributes::runtime()
        && let Some(mask) = runtime.signal_mask(&|mask| mask)
    {
        return mask;
    }
    kumihimo_arch::signal_mask::current()
}

/// The mask of the code that a handler has interrupted.
///
/// # Safety
/// A context of the kernel.
pub(super) unsafe fn of_context(context: *const libc::ucontext_t) -> u64 {
    // SAFETY: the caller's promise. The set begins with the kernel's word.
    unsafe { (&raw const (*context).uc_sigmask).cast::<u64>().read() }
}

/// Gives the calling microprocess this mask.
pub(super) fn note(own: &Signals, mask: u64) {
    own.mask.store(mask, Ordering::SeqCst);
    if let Some(runtime) = thread_attributes::runtime() {
        runtime.signal_mask(&|_| mask);
    }
}

/// The kernel's word of a set.
///
/// # Safety
/// A readable set.
pub(super) unsafe fn word(set: *const sigset_t) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { set.cast::<u64>().read() }
}

/// A set with this word.
pub(super) fn set_of(mask: u64) -> sigset_t {
    // SAFETY: all zeroes are a valid set, which begins with the kernel's word.
    unsafe {
        let mut set = std::mem::MaybeUninit::<sigset_t>::zeroed().assume_init();
        (&raw mut set).cast::<u64>().write(mask);
        set
    }
}
