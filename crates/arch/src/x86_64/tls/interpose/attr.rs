//! pthread functions that ask the kernel about a thread by the id in its block, which for a
//! microprocess is not a kernel thread's. They are defined here for the whole program, as in
//! [`super::dlopen`], and answer for microprocesses; everything else goes to the C library.
//!
//! Callers: language runtimes and sanitizers that look for the bounds of their stack, libraries
//! that count processors. Not answered (they give ESRCH for a microprocess):
//! pthread_setaffinity_np, pthread_getcpuclockid, pthread_{get,set}schedparam, pthread_kill and
//! pthread_setname_np of *another* microprocess.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;

use crate::machine::tls::glibc::FAKE_TID;
use crate::machine::tls::inner::{Inner, ready};
use crate::machine::tls::next_symbol::next;
use crate::machine::tls::template::head;

/// Whether `thread` is a block of ours that has never been the caller of fork.
unsafe fn ours(thread: libc::pthread_t) -> Option<&'static Inner> {
    let inner = ready()?;
    // SAFETY: a pthread_t is the address of a thread block; the C library reads the same word of
    // it.
    let tid =
        unsafe { (thread as *const u8).offset(inner.layout.tid).cast::<u32>().read_volatile() };
    (FAKE_TID..1 << 30).contains(&tid).then_some(inner)
}

/// pthread_getattr_np(3). For a microprocess: its stack, TLS block included, and default values for
/// the rest.
///
/// # Safety
/// As pthread_getattr_np's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getattr_np(
    thread: libc::pthread_t,
    attr: *mut libc::pthread_attr_t,
) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: `attr` is the caller's to initialise; a block of ours has a head.
    unsafe {
        if let Some(inner) = ours(thread) {
            let head = head(thread as *mut u8, inner.layout.below);
            let r = libc::pthread_attr_init(attr);
            return if r != 0 {
                r
            } else {
                libc::pthread_attr_setstack(attr, (*head).lo as *mut c_void, (*head).size)
            };
        }
        let Some(at) = next(&NEXT, c"pthread_getattr_np") else { return libc::ENOSYS };
        std::mem::transmute::<
            usize,
            unsafe extern "C" fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int,
        >(at)(thread, attr)
    }
}

/// pthread_getaffinity_np(3). For a microprocess: the processors of the kernel thread that calls.
///
/// # Safety
/// As pthread_getaffinity_np's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getaffinity_np(
    thread: libc::pthread_t,
    bytes: usize,
    set: *mut libc::cpu_set_t,
) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: `set` has `bytes` bytes, says the caller.
    unsafe {
        if ours(thread).is_some() {
            return if libc::sched_getaffinity(0, bytes, set) == 0 {
                0
            } else {
                *libc::__errno_location()
            };
        }
        let Some(at) = next(&NEXT, c"pthread_getaffinity_np") else { return libc::ENOSYS };
        std::mem::transmute::<
            usize,
            unsafe extern "C" fn(libc::pthread_t, usize, *mut libc::cpu_set_t) -> c_int,
        >(at)(thread, bytes, set)
    }
}
