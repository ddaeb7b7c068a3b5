//! Prefetching of the memory that a switch is about to access.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::microprocess::record::Mp;

/// Prefetches a cache line without waiting for it. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch(line: *const u8) {
    kumihimo_arch::cpu::prefetch(line);
}

/// Prefetches the cache lines that a microprocess accesses first when it is resumed.
#[inline]
pub(crate) fn prefetch_stack(mp: &'static Mp) {
    // SAFETY: records live for ever. The microprocess waits or is about to, so at most the switch
    // of another VP writes the context at this moment. It is one word, which is only used as an
    // address to prefetch.
    let stack =
        unsafe { AtomicPtr::from_ptr(mp.context.get().cast::<*mut u8>()) }.load(Ordering::Relaxed);
    for line in 0..5 {
        prefetch(stack.wrapping_add(line * 64));
    }
    prefetch(std::ptr::with_exposed_provenance(mp.fs.get()));
}

/// Prefetches the cache lines from which a list of all microprocesses takes state and counters.
#[inline]
pub(crate) fn prefetch_counted(mp: &'static Mp) {
    prefetch((&raw const mp.state).cast());
    prefetch((&raw const mp.waits_since).cast());
    prefetch((&raw const mp.counters.cpu_ns).cast());
    prefetch((&raw const mp.counters.preemptions).cast());
    prefetch((&raw const mp.newer).cast());
}
