//! Replacements for the exec family, which stop the preemption of a thread before it calls
//! execve(2).
//!
//! A preemption signal may be pending when the kernel discards the old program's handlers. The new
//! program then receives the SIGTRAP, which terminates it. kernel/events/core.c sends the signal on
//! the way back to user mode, even if the event has been closed meanwhile.
//!
//! The functions are ordinary definitions in the executable, like the dlopen of [`crate::tls`], and
//! have the same limits. `execl`, `execlp` and `execle` remain the C library's own, because Rust
//! cannot define variadic functions.
//!
//! Sources: execve(2), exec(3), fexecve(3), execveat(2).

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use crate::tls::next;

/// Hook that runs with `true` before each exec and with `false` after a failed one.
static HOOK: OnceLock<fn(bool)> = OnceLock::new();

/// Registers the hook that runs with `true` before each exec made through this module, and with
/// `false` after a failed one. Only the first registration in a process takes effect.
pub fn while_executing(hook: fn(bool)) {
    let _ = HOOK.set(hook);
    // Resolve the symbols now. In the child of a fork, the thread that held the dynamic linker's
    // lock may not exist, and the lookup would block forever.
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
    // SAFETY: errno belongs to the calling thread.
    let errno = unsafe { *libc::__errno_location() };
    hook(false);
    // SAFETY: as above; no context switch has happened since.
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
/// Same requirements as execve(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: upheld by the caller. Not execveat(2), which sets a different `AT_EXECFN`.
    executing(|| unsafe { crate::call!(libc::SYS_execve, path, arguments, environment) as c_int })
}

/// execv(3).
///
/// # Safety
/// Same requirements as execv(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: upheld by the caller.
    unsafe { execve(path, arguments, environ) }
}

/// execveat(2).
///
/// # Safety
/// Same requirements as execveat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: upheld by the caller.
    executing(|| unsafe {
        crate::call!(libc::SYS_execveat, directory, path, arguments, environment, flags) as c_int
    })
}

/// fexecve(3).
///
/// # Safety
/// Same requirements as fexecve(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: upheld by the caller.
    unsafe { execveat(fd, c"".as_ptr(), arguments, environment, libc::AT_EMPTY_PATH) }
}

/// execvp(3).
///
/// # Safety
/// Same requirements as execvp(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the address belongs to a function of that type; the caller upholds the rest.
    executing_next(&EXECVP, c"execvp", |at| unsafe {
        std::mem::transmute::<usize, Execvp>(at)(file, arguments)
    })
}

/// execvpe(3).
///
/// # Safety
/// Same requirements as execvpe(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the address belongs to a function of that type; the caller upholds the rest.
    executing_next(&EXECVPE, c"execvpe", |at| unsafe {
        std::mem::transmute::<usize, Execvpe>(at)(file, arguments, environment)
    })
}

/// Runs [`executing`] with the C library's own function `name`. Fails with ENOSYS in a static
/// executable, which has none.
fn executing_next(found: &AtomicUsize, name: &CStr, call: impl FnOnce(usize) -> c_int) -> c_int {
    executing(|| match next(found, name) {
        Some(at) => call(at),
        None => {
            // SAFETY: errno belongs to the calling thread.
            unsafe { *libc::__errno_location() = libc::ENOSYS };
            -1
        }
    })
}
