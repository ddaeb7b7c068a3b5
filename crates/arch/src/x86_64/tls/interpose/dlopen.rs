//! dlopen, dlmopen and dlclose of the program, so that libraries loaded late find all blocks.
//!
//! A library with initial-exec variables is written into the static TLS area of every thread that
//! the C library knows. The functions here hang the chain of blocks into the C library's list, call
//! the next definition of the same name, take the chain off again and renew the template if it
//! changed.
//!
//! They are ordinary definitions in the executable, which take precedence over the C library's for
//! every module of the program. Limits:
//! - Where Kumihimo is linked into a shared library, ours may not be the first definition.
//!   [`interposed`] finds out, and then the chain hangs in the list for good: right, but set*id
//!   costs a system call a block, and each block built or recycled a look at the count of
//!   libraries.
//! - Libraries that the C library loads for itself (NSS, iconv) do not come through here. None
//!   that is known has initial-exec variables; a template that became stale in this way is noticed
//!   some 256 blocks later.
//! - The C library takes the caller of dlopen from the return address, which is ours: a *shared
//!   library* that opens another one by a bare name has the executable's RUNPATH searched instead
//!   of its own. Absolute paths, LD_LIBRARY_PATH and $ORIGIN of the executable work as ever. (The
//!   sanitizers' dlopen has the same limit.)

use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

use crate::kind::Kind;
use crate::machine::tls::chain;
use crate::machine::tls::inner::ready;
use crate::machine::tls::next_symbol::{next, next_dlopen};

/// Begin and end of a call in which the dynamic linker's lock is held, also while it runs
/// constructors and destructors of libraries.
static LINKING: OnceLock<Hooks> = OnceLock::new();

type Hooks = (fn(), fn());

/// Says what is to be called before and after each dlopen and dlclose that comes through here. They
/// nest. Once a process.
///
/// A holder of that lock must not be preempted, although it may run code of the application's: a
/// kernel thread that begins takes it (`__cxa_thread_atexit_impl`), and the virtual processor in
/// whose queue the holder would then be may wait for just that kernel thread.
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

/// Returns when no dlopen is under way: the call takes the lock that they hold.
pub(crate) fn wait_for_others() {
    // SAFETY: a null name means the program itself, which is always open.
    unsafe { next_dlopen(std::ptr::null(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
}

/// Whether the program's calls of dlopen come through here. `KUMI_LAB=dlopen=listed` says
/// no, for tests.
pub(crate) fn interposed() -> bool {
    if kumihimo_config::get().lab.dlopen == Some(kumihimo_config::Dlopen::Listed) {
        return false;
    }
    // SAFETY: the name is NUL-terminated.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr()) };
    std::ptr::eq(first, dlopen as *const c_void)
}

/// dlopen(3), with all blocks of microprocesses visible to the C library.
///
/// # Safety
/// As dlopen's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the caller's.
    linking(|| unsafe { next_dlopen(file, flags) })
}

/// dlmopen(3), likewise.
///
/// # Safety
/// As dlmopen's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmopen(
    namespace: c_long,
    file: *const c_char,
    flags: c_int,
) -> *mut c_void {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let Some(at) = next(&NEXT, c"dlmopen") else { return std::ptr::null_mut() };
    // SAFETY: the address of a function of that type; the rest is the caller's.
    linking(|| unsafe { std::mem::transmute::<usize, Dlmopen>(at)(namespace, file, flags) })
}

/// dlclose(3), likewise.
///
/// # Safety
/// As dlclose's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let Some(at) = next(&NEXT, c"dlclose") else { return -1 };
    // SAFETY: the address of a function of that type; the rest is the caller's.
    linking(|| unsafe { std::mem::transmute::<usize, Dlclose>(at)(handle) })
}
