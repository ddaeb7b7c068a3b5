//! Replacements for pthread functions that pass the thread ID in the block to the kernel. For a
//! microprocess, that ID belongs to no kernel thread.
//!
//! The functions are defined for the whole program, as in [`super::dlopen`]. They handle
//! microprocesses and forward all other calls to the C library. Their callers are language runtimes
//! and sanitizers that determine the bounds of their stack, and libraries that count processors.
//!
//! ESRCH for *another* microprocess: pthread_setaffinity_np, pthread_setschedparam,
//! pthread_getcpuclockid. Not replaced, hence ESRCH for a microprocess: pthread_getschedparam,
//! pthread_setschedprio, and pthread_kill of another one.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicUsize;

use crate::cpu::fs_base;
use crate::glibc::hook::hooked;
use crate::glibc::interpose::scheduling::{sched_setaffinity, sched_setscheduler};
use crate::glibc::tls::glibc::next_symbol::next;
use crate::glibc::tls::inner::{Inner, ready};
use crate::glibc::tls::number;
use crate::glibc::tls::template::head;
use crate::thread_attributes::runtime;

hooked!(PTHREAD_GETATTR_NP, pthread_getattr_np, self::pthread_getattr_np);
hooked!(PTHREAD_GETAFFINITY_NP, pthread_getaffinity_np, self::pthread_getaffinity_np);
hooked!(PTHREAD_SETAFFINITY_NP, pthread_setaffinity_np, self::pthread_setaffinity_np);
hooked!(PTHREAD_SETSCHEDPARAM, pthread_setschedparam, self::pthread_setschedparam);
hooked!(PTHREAD_GETCPUCLOCKID, pthread_getcpuclockid, self::pthread_getcpuclockid);

/// Returns the state, and the block's address (a thread pointer), if `thread` is a microprocess. A
/// block whose microprocess called fork has a real thread ID in the child and does not count.
unsafe fn ours(thread: libc::pthread_t) -> Option<(&'static Inner, *mut u8)> {
    let inner = ready()?;
    // A pthread_t is the address of `struct pthread`.
    let fs = (thread as *mut u8).wrapping_offset(-inner.layout.thread.start);
    // SAFETY: the structure lies in a thread block; the C library reads the same word of it.
    let tid = unsafe { fs.offset(inner.layout.tid).cast::<u32>().read_volatile() };
    (number::FIRST..1 << 30).contains(&tid).then_some((inner, fs))
}

/// Whether the caller is std's start routine on a microprocess: see
/// [`is_starting`](crate::thread_attributes::ThreadAttributes::is_starting).
fn is_starting() -> bool {
    runtime().is_some_and(|runtime| runtime.is_starting())
}

/// Replaces pthread_getattr_np(3). For a microprocess, returns its stack, including the TLS block,
/// and default values for the other attributes.
///
/// Fails for std's start routine. std would enter the guard of the stack in a list of all threads,
/// for its own report of overflows, and the runtime reports those of microprocesses.
///
/// # Safety
/// Same requirements as pthread_getattr_np(3).
pub unsafe extern "C" fn pthread_getattr_np(
    thread: libc::pthread_t,
    attr: *mut libc::pthread_attr_t,
) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the caller provides `attr` for initialisation; a microprocess's block has a head.
    unsafe {
        if let Some((inner, fs)) = ours(thread) {
            if is_starting() {
                return libc::ENOSYS;
            }
            let head = head(fs, inner.layout.below);
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

/// Runs `own` if `thread` is the calling microprocess, returns ESRCH if it is another one, and
/// calls the C library's function, whose address is passed to `other`, in all other cases.
///
/// # Safety
/// `thread` is a thread, as for the C library's function.
unsafe fn for_own(
    thread: libc::pthread_t,
    found: (&AtomicUsize, &std::ffi::CStr),
    own: impl FnOnce() -> c_int,
    other: impl FnOnce(usize) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some((_, fs)) = (unsafe { ours(thread) }) else {
        return next(found.0, found.1).map_or(libc::ENOSYS, other);
    };
    if fs as usize != fs_base() {
        return libc::ESRCH;
    }
    // The pthread functions return the error number instead of setting errno.
    // SAFETY: errno belongs to the calling thread.
    if own() == 0 { 0 } else { unsafe { *libc::__errno_location() } }
}

/// Replaces pthread_setaffinity_np(3). Binds the calling microprocess.
///
/// # Safety
/// Same requirements as pthread_setaffinity_np(3).
pub unsafe extern "C" fn pthread_setaffinity_np(
    thread: libc::pthread_t,
    bytes: usize,
    set: *const libc::cpu_set_t,
) -> c_int {
    type Next = unsafe extern "C" fn(libc::pthread_t, usize, *const libc::cpu_set_t) -> c_int;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the caller's promise; the address is that of a function of this type.
    unsafe {
        for_own(
            thread,
            (&NEXT, c"pthread_setaffinity_np"),
            || sched_setaffinity(0, bytes, set),
            |at| std::mem::transmute::<usize, Next>(at)(thread, bytes, set),
        )
    }
}

/// Replaces pthread_setschedparam(3). Binds the calling microprocess.
///
/// # Safety
/// Same requirements as pthread_setschedparam(3).
pub unsafe extern "C" fn pthread_setschedparam(
    thread: libc::pthread_t,
    policy: c_int,
    parameters: *const libc::sched_param,
) -> c_int {
    type Next = unsafe extern "C" fn(libc::pthread_t, c_int, *const libc::sched_param) -> c_int;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: as above.
    unsafe {
        for_own(
            thread,
            (&NEXT, c"pthread_setschedparam"),
            || sched_setscheduler(0, policy, parameters),
            |at| std::mem::transmute::<usize, Next>(at)(thread, policy, parameters),
        )
    }
}

/// Replaces pthread_getcpuclockid(3). The calling microprocess gets the clock of the calling
/// thread, which clock_gettime(2) then reads for whichever microprocess calls it.
///
/// # Safety
/// Same requirements as pthread_getcpuclockid(3).
pub unsafe extern "C" fn pthread_getcpuclockid(
    thread: libc::pthread_t,
    clock: *mut libc::clockid_t,
) -> c_int {
    type Next = unsafe extern "C" fn(libc::pthread_t, *mut libc::clockid_t) -> c_int;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: as above; `clock` may be written.
    unsafe {
        for_own(
            thread,
            (&NEXT, c"pthread_getcpuclockid"),
            || {
                *clock = libc::CLOCK_THREAD_CPUTIME_ID;
                0
            },
            |at| std::mem::transmute::<usize, Next>(at)(thread, clock),
        )
    }
}

/// The longest name of a thread, with its NUL (`TASK_COMM_LEN` of the kernel).
const NAME: usize = 16;

/// Replaces pthread_setname_np(3). Names a microprocess, the calling or another one, for reports
/// and for [`pthread_getname_np`]. The name of the kernel thread remains.
///
/// Does nothing for std's start routine, which passes the name that the microprocess has, cut to
/// the length of a thread's.
///
/// # Safety
/// Same requirements as pthread_setname_np(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(thread: libc::pthread_t, name: *const c_char) -> c_int {
    type Next = unsafe extern "C" fn(libc::pthread_t, *const c_char) -> c_int;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the caller's promise; the address is that of a function of this type.
    unsafe {
        let Some((_, fs)) = ours(thread) else {
            let found = next(&NEXT, c"pthread_setname_np");
            return found
                .map_or(libc::ENOSYS, |at| std::mem::transmute::<usize, Next>(at)(thread, name));
        };
        if is_starting() {
            return 0;
        }
        let name = std::ffi::CStr::from_ptr(name).to_bytes();
        if name.len() >= NAME {
            return libc::ERANGE;
        }
        match runtime().and_then(|runtime| runtime.set_name(fs as usize, name)) {
            Some(true) => 0,
            _ => libc::ESRCH,
        }
    }
}

/// Replaces pthread_getname_np(3).
///
/// # Safety
/// Same requirements as pthread_getname_np(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getname_np(
    thread: libc::pthread_t,
    to: *mut c_char,
    bytes: usize,
) -> c_int {
    type Next = unsafe extern "C" fn(libc::pthread_t, *mut c_char, usize) -> c_int;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: as above; `to` has `bytes` bytes.
    unsafe {
        let Some((_, fs)) = ours(thread) else {
            let found = next(&NEXT, c"pthread_getname_np");
            return found.map_or(libc::ENOSYS, |at| {
                std::mem::transmute::<usize, Next>(at)(thread, to, bytes)
            });
        };
        if bytes < NAME {
            return libc::ERANGE;
        }
        let mut name = [0; NAME];
        match runtime().and_then(|runtime| runtime.name(fs as usize, &mut name)) {
            Some(length) => {
                to.cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), length);
                *to.add(length) = 0;
                0
            }
            None => libc::ESRCH,
        }
    }
}
