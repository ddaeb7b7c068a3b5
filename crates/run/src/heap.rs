//! The heap of the runtime.
//!
//! The program's own may be any, preloaded or linked in. A thread of the program that is preempted
//! while it holds that heap's lock must not stop the runtime, which would have to run it again. So
//! this library allocates from a heap of its own, whose lock is held in sections without
//! preemption.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;

use dlmalloc::Dlmalloc;
use kumihimo_arch::lock::Lock;

struct Heap {
    lock: Lock,
    memory: UnsafeCell<Dlmalloc>,
}

// SAFETY: `memory` is accessed under `lock` only.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap { lock: Lock::new(), memory: UnsafeCell::new(Dlmalloc::new()) };

impl Heap {
    fn with<R>(&self, f: impl FnOnce(&mut Dlmalloc) -> R) -> R {
        // SAFETY: the lock is held.
        self.lock.with(|| f(unsafe { &mut *self.memory.get() }))
    }
}

// SAFETY: dlmalloc upholds the contract; it is called by one thread at a time.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        self.with(|heap| unsafe { heap.free(at, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        self.with(|heap| unsafe { heap.realloc(at, layout.size(), layout.align(), size) })
    }
}

/// Acquires the heap's lock, before a fork.
pub(crate) fn hold() {
    HEAP.lock.lock();
}

/// Releases the heap's lock after a fork, in the parent or in the child.
pub(crate) fn release() {
    HEAP.lock.unlock();
}
