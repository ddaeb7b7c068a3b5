//! Callers that wait for a free cell of their link.

use std::collections::VecDeque;

use crate::loom::{AtomicUsize, Mutex, Ordering, Waiter, lock};

/// The waiting callers, first come first served.
pub(super) struct CellQueue {
    queue: Mutex<VecDeque<Waiter>>,
    /// How many are queued, for a look without the lock.
    queued: AtomicUsize,
}

impl CellQueue {
    pub(super) fn new() -> CellQueue {
        CellQueue { queue: Mutex::new(VecDeque::new()), queued: AtomicUsize::new(0) }
    }

    pub(super) fn push(&self, waiter: &Waiter) {
        let mut queue = lock(&self.queue);
        self.queued.fetch_add(1, Ordering::SeqCst);
        queue.push_back(waiter.clone());
    }

    /// Removes a caller that waits no longer. False: it was woken for a cell, and had left the
    /// queue by that.
    pub(super) fn remove(&self, waiter: &Waiter) -> bool {
        let mut queue = lock(&self.queue);
        let at = queue.iter().position(|one| one == waiter);
        if let Some(at) = at {
            queue.remove(at);
            self.queued.fetch_sub(1, Ordering::SeqCst);
        }
        at.is_some()
    }

    /// Whether no caller waits, by a load without the lock. A thread that gives a cell back fences
    /// that with SeqCst before: a caller that queues afterwards finds the cell.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queued.load(Ordering::Relaxed) == 0
    }

    /// Wakes the first caller, if there is one.
    #[cold]
    pub(super) fn wake_first(&self) {
        let first = {
            let mut queue = lock(&self.queue);
            let first = queue.pop_front();
            if first.is_some() {
                self.queued.fetch_sub(1, Ordering::SeqCst);
            }
            first
        };
        if let Some(waiter) = first {
            waiter.wake();
        }
    }

    /// Wakes all callers: the link has ended.
    pub(super) fn wake_all(&self) {
        let all: Vec<Waiter> = {
            let mut queue = lock(&self.queue);
            self.queued.store(0, Ordering::SeqCst);
            queue.drain(..).collect()
        };
        all.iter().for_each(Waiter::wake);
    }
}
