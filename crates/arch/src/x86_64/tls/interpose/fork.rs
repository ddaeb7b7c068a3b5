//! fork: the child has the caller alone, whatever the others were doing.
//!
//! Our locks are taken before and released after, so that no state is half written in the child.
//! There the C library has emptied its list of threads: blocks other than the caller's are dead
//! memory, which may be built upon no more but is not handed out again either; the anchors are made
//! anew when somebody builds a block or loads a library. The caller's block has been given the
//! child's real thread id.

use std::sync::atomic::Ordering;

use crate::kind::Kind;
use crate::machine::tls::chain;
use crate::machine::tls::inner::ready;
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

pub(crate) fn register() -> Result<(), String> {
    use std::sync::atomic::AtomicBool;
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    // SAFETY: three functions that live as long as the program.
    let r = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    if r == 0 { Ok(()) } else { Err("no memory for fork handlers".into()) }
}
