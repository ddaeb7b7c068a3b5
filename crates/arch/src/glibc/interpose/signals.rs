//! The signal mask and the alternate signal stack of the calling thread.
//!
//! Sources: pthread_sigmask(3), sigprocmask(2), sigaltstack(2).

use std::ffi::{c_int, c_long};

use super::{call, failed, runtime};
use crate::glibc::hook::hooked;
use crate::signal_mask::{BLOCKABLE, NEVER_BLOCKED};

hooked!(PTHREAD_SIGMASK, pthread_sigmask, self::pthread_sigmask);
hooked!(SIGPROCMASK, sigprocmask, self::sigprocmask);
hooked!(SIGALTSTACK, sigaltstack, self::sigaltstack);

const BYTES: usize = size_of::<u64>();

/// Replaces pthread_sigmask(3).
///
/// # Safety
/// Same requirements as pthread_sigmask(3).
pub unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    set: *const libc::sigset_t,
    before: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's promise: both are null or sets, which begin with the kernel's word.
    let (set, before) = unsafe { (set.cast::<u64>().as_ref(), before.cast::<u64>()) };
    // SAFETY: as above.
    match unsafe { change_mask(how, set.copied(), before) } {
        Ok(()) => 0,
        Err(error) => error,
    }
}

/// Replaces sigprocmask(2), which changes the mask of the calling thread only.
///
/// # Safety
/// Same requirements as sigprocmask(2).
pub unsafe extern "C" fn sigprocmask(
    how: c_int,
    set: *const libc::sigset_t,
    before: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { pthread_sigmask(how, set, before) } {
        0 => 0,
        error => failed(error) as c_int,
    }
}

/// Changes the mask of the calling thread, without the C library's internal signals. Writes the
/// kernel's word of the one before.
///
/// # Safety
/// `before` is null or may be written.
pub(super) unsafe fn change_mask(
    how: c_int,
    set: Option<u64>,
    before: *mut u64,
) -> Result<(), c_int> {
    // The kernel leaves SIGKILL and SIGSTOP out without an error. SIGBUS counts as blocked: see
    // `NEVER_BLOCKED`.
    let set = set.map(|set| set & (BLOCKABLE | NEVER_BLOCKED));
    let change = |mask: u64| match (set, how) {
        (None, _) => mask,
        (Some(set), libc::SIG_BLOCK) => mask | set,
        (Some(set), libc::SIG_UNBLOCK) => mask & !set,
        (Some(set), _) => set,
    };
    let is_known = matches!(how, libc::SIG_BLOCK | libc::SIG_UNBLOCK | libc::SIG_SETMASK);
    if set.is_some() && !is_known {
        return Err(libc::EINVAL);
    }
    let runtime = runtime();
    if let Some(was) = runtime.and_then(|runtime| runtime.signal_mask(&change)) {
        // SAFETY: the caller's promise.
        if let Some(before) = unsafe { before.as_mut() } {
            *before = was;
        }
        return Ok(());
    }
    let mut was = 0u64;
    let set_at = set.as_ref().map_or(0, |set| std::ptr::from_ref(set).expose_provenance());
    let was_at = (&raw mut was).expose_provenance();
    // SAFETY: two live words, or null.
    let done = unsafe {
        crate::system_call(libc::SYS_rt_sigprocmask, [how as usize, set_at, was_at, BYTES, 0, 0])
    };
    if done < 0 {
        return Err(-done as c_int);
    }
    // SAFETY: the caller's promise.
    if let Some(before) = unsafe { before.as_mut() } {
        *before = was;
    }
    if let (Some(runtime), Some(_)) = (runtime, set) {
        runtime.foreign_mask(change(was));
    }
    Ok(())
}

/// Replaces sigaltstack(2).
///
/// # Safety
/// Same requirements as sigaltstack(2).
pub unsafe extern "C" fn sigaltstack(
    new: *const libc::stack_t,
    before: *mut libc::stack_t,
) -> c_int {
    // SAFETY: the caller's promise: null or a readable struct.
    let wanted = unsafe { new.as_ref() }.copied();
    match runtime().and_then(|runtime| runtime.signal_stack(wanted)) {
        Some(Ok(was)) => {
            // SAFETY: the caller's promise.
            if let Some(before) = unsafe { before.as_mut() } {
                *before = was;
            }
            0
        }
        Some(Err(error)) => failed(error) as c_int,
        // SAFETY: the caller's promise.
        None => unsafe {
            let arguments = [new.expose_provenance(), before.expose_provenance(), 0, 0, 0, 0];
            call(libc::SYS_sigaltstack as c_long, arguments) as c_int
        },
    }
}
