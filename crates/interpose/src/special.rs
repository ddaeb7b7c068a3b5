//! Objects that the kernel or another process takes part in: robust and priority-inheriting
//! mutexes, and all that are shared between processes.
//!
//! The C library handles them, on a kernel thread that belongs to the microprocess for the rest of
//! its life: the kernel knows an owner by its thread ID, boosts that thread, and releases what it
//! holds when it ends.

use crate::real::libc;
use kumihimo_arch::{system_call, tls};
use kumihimo_runtime::park;
use kumihimo_runtime::thread::bind;

/// Runs `f`, which calls the C library, as a kernel thread does. A microprocess gets a kernel
/// thread of its own, and the C library marks what it owns with the ID of that thread. If there is
/// no kernel thread for it, `f` runs nevertheless, and the mark is the number of the microprocess.
pub(crate) fn as_kernel_thread<R>(f: impl FnOnce() -> R) -> R {
    if !park::is_microprocess() || bind().is_err() {
        return f();
    }
    register_robust_list();
    // SAFETY: takes nothing; the caller is bound, so it keeps its kernel thread.
    unsafe { tls::get().with_number(libc::gettid().cast_unsigned(), f) }
}

/// Has the kernel release what the caller holds if its kernel thread is killed
/// (set_robust_list(2)). The C library keeps the list in the block of the thread, at the same place
/// in each.
fn register_robust_list() {
    let mut head = 0usize;
    let mut bytes = 0usize;
    let at = [(&raw mut head).expose_provenance(), (&raw mut bytes).expose_provenance()];
    // SAFETY: two live words.
    let known = unsafe { system_call(libc::SYS_get_robust_list, [0, at[0], at[1], 0, 0, 0]) } == 0;
    if let Some(own) = tls::get().robust_list().filter(|own| known && head != *own) {
        // SAFETY: the caller's own list.
        unsafe { system_call(libc::SYS_set_robust_list, [own, bytes, 0, 0, 0, 0]) };
    }
}
