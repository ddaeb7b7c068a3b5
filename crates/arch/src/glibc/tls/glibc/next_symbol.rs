//! The C library's own definitions of functions that this crate replaces.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

pub(in super::super) type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Returns the next definition of `name` after this module's, looked up once. None in a static
/// executable.
pub(crate) fn next(cache: &AtomicUsize, name: &CStr) -> Option<usize> {
    // Relaxed: every thread that looks the symbol up stores the same value.
    let mut at = cache.load(Ordering::Relaxed);
    if at == 0 {
        // SAFETY: the name is NUL-terminated.
        at = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
        cache.store(at, Ordering::Relaxed);
    }
    (at != 0).then_some(at)
}

/// Calls the C library's dlopen.
///
/// # Safety
/// Same requirements as dlopen(3).
pub(in super::super) unsafe fn next_dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let Some(at) = next(&NEXT, c"dlopen") else { return std::ptr::null_mut() };
    // SAFETY: the address belongs to a function of that type; the caller upholds the rest.
    unsafe { std::mem::transmute::<usize, Dlopen>(at)(file, flags) }
}

/// Calls the C library's sigaction.
///
/// # Safety
/// Same requirements as sigaction(2).
pub(crate) unsafe fn next_sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    type Next = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the address belongs to a function of that type; the caller upholds the rest.
    unsafe {
        match next(&NEXT, c"sigaction") {
            Some(at) => std::mem::transmute::<usize, Next>(at)(signal, new, before),
            None => libc::sigaction(signal, new, before),
        }
    }
}
