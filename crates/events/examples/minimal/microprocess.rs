//! A microprocess: its stack, its thread-local storage and its place in a queue.

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use kumihimo_arch::cpu::Context;
use kumihimo_arch::stack::{self, Class, RECORD};
use kumihimo_arch::tls;
use kumihimo_events::return_queue::Ticket;

/// Priorities are 0 (lowest) to 63.
pub(super) const LEVELS: usize = 64;
/// In [`Mp::level`]: the microprocess is in no queue.
pub(super) const NOT_QUEUED: u8 = LEVELS as u8;

/// A microprocess. It is reused and never freed, since allocators keep caches in its thread-local
/// storage. The owner of its cells is its carrier while it runs, otherwise the holder of the
/// queue's lock.
pub(super) struct Mp {
    pub(super) context: UnsafeCell<Context>,
    /// The microprocess's own block of thread-local storage, so that unmodified code works on any
    /// kernel thread.
    pub(super) fs: usize,
    /// The bounds of the memory that the stack and the block share.
    pub(super) memory: (*mut u8, *mut u8),
    pub(super) body: UnsafeCell<Option<Box<dyn FnOnce() + Send>>>,
    /// The ID of the current use of this record; 0 between two uses.
    pub(super) id: AtomicU64,
    pub(super) priority: AtomicU8,
    pub(super) level: Cell<u8>,
    pub(super) next: Cell<Option<&'static Mp>>,
    pub(super) joiner: Cell<Option<&'static Mp>>,
    /// The ticket of the kernel thread on which the microprocess waits for a VP. `None` if any
    /// carrier can switch to its context.
    pub(super) waits_on: Cell<Option<Ticket>>,
}

// SAFETY: the cells have one owner at a time (see above). Ownership moves through the queue's lock
// or `returned`, which order the accesses.
unsafe impl Sync for Mp {}

impl Mp {
    pub(super) fn create(class: Class) -> io::Result<&'static Mp> {
        let mut end = [ptr::null_mut()];
        stack::acquire(class, &mut end)?;
        let low = end[0].wrapping_sub(class.slot_size()).wrapping_add(class.guard_size());
        let memory = (low, end[0].wrapping_sub(RECORD));
        // SAFETY: a new slot: zeroed, owned by the caller, and never unmapped.
        let block = unsafe { tls::get().build(memory.0, memory.1)? };
        Ok(Box::leak(Box::new(Mp {
            context: UnsafeCell::new(Context::NULL),
            fs: block as usize,
            memory,
            body: UnsafeCell::new(None),
            id: AtomicU64::new(0),
            priority: AtomicU8::new(0),
            level: Cell::new(NOT_QUEUED),
            next: Cell::new(None),
            joiner: Cell::new(None),
            waits_on: Cell::new(None),
        })))
    }

    pub(super) fn priority(&self) -> u8 {
        self.priority.load(Relaxed)
    }
}
