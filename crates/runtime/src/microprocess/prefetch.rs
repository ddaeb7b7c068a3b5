//! Prefetching of what a switch is about to touch.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::microprocess::record::Mp;

/// Asks the processor for a line of memory, and does not wait for it. Any address will do.
#[inline(always)]
pub(crate) fn prefetch(line: *const u8) {
    kumihimo_arch::cpu::prefetch(line);
}

/// Asks for the lines that a microprocess will touch first when it runs on.
#[inline]
pub(crate) fn prefetch_stack(mp: &'static Mp) {
    // SAFETY: records live for ever. It waits or is about to, so its context is written, if at all,
    // by the switch of another VP at this moment: one word, which is only taken for an address to
    // ask for.
    let stack =
        unsafe { AtomicPtr::from_ptr(mp.context.get().cast::<*mut u8>()) }.load(Ordering::Relaxed);
    for line in 0..5 {
        prefetch(stack.wrapping_add(line * 64));
    }
    prefetch(std::ptr::with_exposed_provenance(mp.fs.get()));
}
