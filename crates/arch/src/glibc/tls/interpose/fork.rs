//! Fork handlers: keep this crate's state consistent in the child, which has only the calling
//! thread.
//!
//! The handlers acquire this crate's locks before the fork and release them afterwards, so the
//! child has no half-written state. In the child, the C library has emptied its list of threads and
//! given the caller's block the child's real thread ID. All other blocks are dead memory: they are
//! neither used nor handed out again. New anchors are created when a thread builds a block or loads
//! a library.

use std::sync::atomic::Ordering;

use crate::glibc::tls::chain;
use crate::glibc::tls::inner::ready;
use crate::kind::Kind;
use crate::{cpu::fs_base, stack};

unsafe extern "C" fn prepare() {
    if let Some(inner) = ready() {
        inner.lock.lock();
        chain::lock();
        stack::lock_all();
    }
}

unsafe extern "C" fn parent() {
    if let Some(inner) = ready() {
        stack::unlock_all();
        chain::unlock();
        inner.lock.unlock();
    }
}

unsafe extern "C" fn child() {
    if let Some(inner) = ready() {
        if inner.kind == Kind::Clone {
            chain::after_fork(&inner.layout, fs_base() as *mut u8);
            inner.orphaned.store(true, Ordering::Release);
        }
        stack::unlock_all();
        chain::unlock();
        inner.lock.unlock();
    }
}

/// Registers the handlers, unless they are registered.
///
/// A handler of the program that waits must not run while they hold the locks. pthread_atfork(3)
/// calls the handlers that were registered first last before the fork, so these should be
/// registered before the program's.
///
/// # Errors
/// Memory is short. A later call tries again.
pub fn hold_locks_over_forks() -> Result<(), String> {
    use std::sync::atomic::AtomicBool;
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    // SAFETY: the functions are static.
    let r = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    if r == 0 {
        return Ok(());
    }
    DONE.store(false, Ordering::Release);
    Err("no memory for fork handlers".into())
}
