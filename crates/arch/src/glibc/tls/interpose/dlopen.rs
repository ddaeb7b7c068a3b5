//! Replacements for dlopen, dlmopen and dlclose, so that libraries loaded late reach all blocks.
//!
//! ld.so writes a library's initial-exec variables into the static TLS area of every thread on the
//! C library's list. The functions of this module link the chain of blocks into that list and call
//! the next definition of the same name. Then they unlink the chain, and renew the template if it
//! changed.
//!
//! They are ordinary definitions in the executable, which take precedence over the C library's for
//! every module of the program. Limits:
//! - If Kumihimo is linked into a shared library, its definition may not be the first one.
//!   [`interposed`] detects this, and the chain then stays on the list permanently. The result is
//!   correct, but set*id costs a system call per block, and each block built or recycled costs a
//!   check of the number of loaded libraries.
//! - Libraries that the C library loads for itself (NSS, iconv) bypass these functions. No known
//!   library of this kind has initial-exec variables. A template that became stale this way is
//!   detected within about 256 blocks.
//! - The C library determines the caller of dlopen from the return address, which lies in the
//!   executable. If a *shared library* opens another one by a bare name, the executable's RUNPATH
//!   is searched instead of the library's. Absolute paths, LD_LIBRARY_PATH and $ORIGIN of the
//!   executable are not affected. The sanitizers' dlopen has the same limit.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use crate::glibc::tls::chain;
use crate::glibc::tls::glibc::next_symbol::{next, next_dlopen};
use crate::glibc::tls::inner::ready;
use crate::kind::Kind;

/// Hooks around a call that holds the dynamic linker's lock, including the constructors and
/// destructors of libraries that it runs.
static LINKING: OnceLock<Hooks> = OnceLock::new();

type Hooks = (fn(), fn());

/// Registers the hooks that run before and after each dlopen and dlclose made through this module.
/// Calls nest. Only the first registration in a process takes effect.
///
/// The hooks keep the holder of the dynamic linker's lock from being preempted, although it may run
/// application code. A new kernel thread acquires the same lock (`__cxa_thread_atexit_impl`). A
/// preempted holder would wait in the run queue of a virtual processor, which may itself wait for
/// that kernel thread.
pub fn while_linking(begin: fn(), end: fn()) {
    let _ = LINKING.set((begin, end));
}

fn linking<R>(f: impl FnOnce() -> R) -> R {
    if let Some((begin, _)) = LINKING.get() {
        begin();
    }
    let r = while_listed(f);
    if let Some((_, end)) = LINKING.get() {
        end();
    }
    r
}

/// Runs `f`, a dlopen or dlclose, with all blocks on the C library's list.
fn while_listed<R>(f: impl FnOnce() -> R) -> R {
    let Some(inner) = ready().filter(|i| !i.listed) else { return f() };
    inner.check_orphaned();
    let listed = inner.kind == Kind::Clone;
    if listed {
        chain::enter(&inner.layout);
    }
    let r = f();
    inner.changed(listed);
    r
}

type Dlmopen = unsafe extern "C" fn(c_long, *const c_char, c_int) -> *mut c_void;
type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Waits until no dlopen is in progress, by a call that acquires the same lock.
pub(crate) fn wait_for_others() {
    // SAFETY: a null name means the program itself, which is always open.
    unsafe { next_dlopen(std::ptr::null(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
}

/// Returns whether the program's calls of dlopen reach this module. `KUMI_LAB=dlopen=listed` makes
/// it return false, for tests.
pub(crate) fn interposed() -> bool {
    if kumihimo_config::get().lab.dlopen == Some(kumihimo_config::Dlopen::Listed) {
        return false;
    }
    // SAFETY: the name is NUL-terminated.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr()) };
    std::ptr::eq(first, dlopen as *const c_void)
}

/// Replaces dlopen(3): makes all blocks of microprocesses visible to the C library during the call.
///
/// # Safety
/// Same requirements as dlopen(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: upheld by the caller.
    linking(|| unsafe { next_dlopen(file, flags) })
}

/// Replaces dlmopen(3), in the same way as [`dlopen`].
///
/// # Safety
/// Same requirements as dlmopen(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmopen(
    namespace: c_long,
    file: *const c_char,
    flags: c_int,
) -> *mut c_void {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let Some(at) = next(&NEXT, c"dlmopen") else { return std::ptr::null_mut() };
    // SAFETY: the address belongs to a function of that type; the caller upholds the rest.
    linking(|| unsafe { std::mem::transmute::<usize, Dlmopen>(at)(namespace, file, flags) })
}

/// Replaces dlclose(3), in the same way as [`dlopen`].
///
/// # Safety
/// Same requirements as dlclose(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let Some(at) = next(&NEXT, c"dlclose") else { return -1 };
    // SAFETY: the address belongs to a function of that type; the caller upholds the rest.
    linking(|| unsafe { std::mem::transmute::<usize, Dlclose>(at)(handle) })
}
