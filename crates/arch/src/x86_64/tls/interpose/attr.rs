//! Replacements for pthread functions that pass the thread ID in the block to the kernel. For a
//! microprocess, that ID belongs to no kernel thread.
//!
//! The functions are defined for the whole program, as in [`super::dlopen`]. They handle
//! microprocesses and forward all other calls to the C library. Their callers are language runtimes
//! and sanitizers that determine the bounds of their stack, and libraries that count processors.
//!
//! Not replaced, hence ESRCH for a microprocess: pthread_setaffinity_np, pthread_getcpuclockid,
//! pthread_{get,set}schedparam, and pthread_kill and pthread_setname_np of *another* microprocess.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;

use crate::machine::tls::glibc::FAKE_TID;
use crate::machine::tls::glibc::next_symbol::next;
use crate::machine::tls::inner::{Inner, ready};
use crate::machine::tls::template::head;

/// Returns the state if `thread` is a microprocess's block. A block whose microprocess called fork
/// has a real thread ID in the child and does not count.
unsafe fn ours(thread: libc::pthread_t) -> Option<&'static Inner> {
    let inner = ready()?;
    // SAFETY: a pthread_t is the address of a thread block; the C library reads the same word of
    // it.
    let tid =
        unsafe { (thread as *const u8).offset(inner.layout.tid).cast::<u32>().read_volatile() };
    (FAKE_TID..1 << 30).contains(&tid).then_some(inner)
}

/// Replaces pthread_getattr_np(3). For a microprocess, returns its stack, including the TLS block,
/// and default values for the other attributes.
///
/// # Safety
/// Same requirements as pthread_getattr_np(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getattr_np(
    thread: libc::pthread_t,
    attr: *mut libc::pthread_attr_t,
) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the caller provides `attr` for initialisation; a microprocess's block has a head.
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

/// Replaces pthread_getaffinity_np(3). For a microprocess, returns the processors of the calling
/// kernel thread.
///
/// # Safety
/// Same requirements as pthread_getaffinity_np(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getaffinity_np(
    thread: libc::pthread_t,
    bytes: usize,
    set: *mut libc::cpu_set_t,
) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the caller guarantees that `set` has `bytes` bytes.
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
