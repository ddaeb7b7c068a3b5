//! The exec family of the program, so that a thread in execve(2) is not interrupted any more: an
//! interruption that is on its way when the kernel drops the old program's handlers comes to the
//! new one, and ends it (SIGTRAP; kernel/events/core.c sends it on the way back to user mode,
//! whatever became of the event).
//!
//! Ordinary definitions in the executable, as those of [`crate::tls`]'s dlopen, with the same
//! limits; and `execl`, `execlp` and `execle` are the C library's own, since Rust has no functions
//! of any number of arguments.
//!
//! Source: execve(2), exec(3), fexecve(3), execveat(2).

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use crate::tls::next;

/// Told of a call's begin, and of its end, if it comes back.
static HOOK: OnceLock<fn(bool)> = OnceLock::new();

/// Says what is to be called with `true` before each exec that comes through here, and with `false`
/// after one that failed. Once a process.
pub fn while_executing(hook: fn(bool)) {
    let _ = HOOK.set(hook);
    // Now, and not in a fork's child, where the holder of the dynamic linker's lock may not exist.
    for (cache, name) in [(&EXECVP, c"execvp"), (&EXECVPE, c"execvpe")] {
        next(cache, name);
    }
}

static EXECVP: AtomicUsize = AtomicUsize::new(0);
static EXECVPE: AtomicUsize = AtomicUsize::new(0);

fn executing(f: impl FnOnce() -> c_int) -> c_int {
    let Some(hook) = HOOK.get() else { return f() };
    hook(true);
    let failed = f();
    // SAFETY: the calling thread's.
    let errno = unsafe { *libc::__errno_location() };
    hook(false);
    // SAFETY: as above: nothing has switched.
    unsafe { *libc::__errno_location() = errno };
    failed
}

type Strings = *const *const c_char;
type Execvp = unsafe extern "C" fn(*const c_char, Strings) -> c_int;
type Execvpe = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;

unsafe extern "C" {
    static environ: Strings;
}

/// execve(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the caller's. Not execveat(2), which has another `AT_EXECFN`.
    executing(|| unsafe { libc::syscall(libc::SYS_execve, path, arguments, environment) as c_int })
}

/// execv(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe { execve(path, arguments, environ) }
}

/// execveat(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's.
    executing(|| unsafe {
        libc::syscall(libc::SYS_execveat, directory, path, arguments, environment, flags) as c_int
    })
}

/// fexecve(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe { execveat(fd, c"".as_ptr(), arguments, environment, libc::AT_EMPTY_PATH) }
}

/// execvp(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the address of a function of that type; the rest is the caller's.
    executing_next(&EXECVP, c"execvp", |at| unsafe {
        std::mem::transmute::<usize, Execvp>(at)(file, arguments)
    })
}

/// execvpe(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the address of a function of that type; the rest is the caller's.
    executing_next(&EXECVPE, c"execvpe", |at| unsafe {
        std::mem::transmute::<usize, Execvpe>(at)(file, arguments, environment)
    })
}

/// As [`executing`], by the C library's own function `name`. A static executable has none (ENOSYS).
fn executing_next(found: &AtomicUsize, name: &CStr, call: impl FnOnce(usize) -> c_int) -> c_int {
    executing(|| match next(found, name) {
        Some(at) => call(at),
        None => {
            // SAFETY: the calling thread's.
            unsafe { *libc::__errno_location() = libc::ENOSYS };
            -1
        }
    })
}
