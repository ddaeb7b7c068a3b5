//! Owner's interface to one VP's queue.

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::any_queue::AnyQueue;
use crate::node::{Node, Origin, Place};
use crate::part::injector::Chain;
use crate::part::shared_side::Stats;
use crate::run_queue::{RunQueue, Taker};

/// The owner's handle to one VP's queue. It is not `Send`; the VP's record, which moves between
/// kernel threads, guarantees exclusive use.
pub struct Owner<T: Node + 'static> {
    pub(crate) queue: AnyQueue<'static, T>,
    pub(crate) not_send: PhantomData<*mut T>,
}

impl<T: Node> Clone for Owner<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Node> Copy for Owner<T> {}

impl<T: Node> Owner<T> {
    /// Calls [`RunQueue::push`].
    ///
    /// # Safety
    /// Same requirements as [`RunQueue::push`].
    #[inline]
    pub unsafe fn push(self, item: NonNull<T>, place: Place, origin: Origin) {
        // SAFETY: upheld by the caller.
        unsafe { self.queue.push(item, place, origin) }
    }

    /// Calls [`RunQueue::pop`].
    #[inline]
    pub fn pop(self) -> Option<(NonNull<T>, u8)> {
        self.queue.pop()
    }

    /// Calls [`RunQueue::pop_at_least`].
    #[inline]
    pub fn pop_at_least(self, level: u8) -> Option<(NonNull<T>, u8)> {
        self.queue.pop_at_least(level)
    }

    /// Calls [`RunQueue::remove`].
    ///
    /// # Safety
    /// Same requirements as [`RunQueue::remove`].
    #[inline]
    pub unsafe fn remove(self, item: NonNull<T>) -> bool {
        // SAFETY: upheld by the caller.
        unsafe { self.queue.remove(item) }
    }

    /// Moves a queued item to another place, for example after a change of its priority. Returns
    /// `false` if the item is not reachable (see [`RunQueue::remove`]); it then keeps its old
    /// place.
    ///
    /// # Safety
    /// `item` is live. It need not be in this queue.
    pub unsafe fn requeue(self, item: NonNull<T>, place: Place, origin: Origin) -> bool {
        // SAFETY: upheld by the caller; after the removal, this VP holds the item, and it is in no
        // queue.
        unsafe {
            let here = self.queue.remove(item);
            if here {
                self.queue.push(item, place, origin);
            }
            here
        }
    }

    /// Calls [`RunQueue::exchange`].
    #[inline]
    #[must_use]
    pub fn exchange(self) -> Option<Taker> {
        self.queue.exchange()
    }

    /// Calls [`RunQueue::surplus`].
    #[inline]
    #[must_use]
    pub fn surplus(self, someone_idle: bool) -> Option<Taker> {
        self.queue.surplus(someone_idle)
    }

    /// Calls [`RunQueue::pull`].
    pub fn pull(self) -> bool {
        self.queue.pull()
    }

    /// Calls [`RunQueue::has_incoming`].
    pub fn has_incoming(self) -> bool {
        self.queue.has_incoming()
    }

    /// Calls [`RunQueue::has_visible_work`].
    pub fn has_visible_work(self) -> bool {
        self.queue.has_visible_work()
    }

    /// Returns whether the injector is empty, by one relaxed load.
    #[inline]
    pub fn injector_is_empty(self) -> bool {
        self.queue.injector().is_empty()
    }

    /// Takes all injected items, in the order of their arrival. The caller holds each of them.
    #[inline]
    pub fn take_injected(self) -> Chain<T> {
        self.queue.injector().take()
    }

    /// Calls [`RunQueue::len`].
    #[inline]
    pub fn len(self) -> usize {
        self.queue.len()
    }

    /// Returns whether this queue is empty. In `steal`, may return `false` after other VPs have
    /// emptied it.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.queue.is_empty()
    }

    /// Calls [`RunQueue::levels`].
    #[inline]
    pub fn levels(self) -> u64 {
        self.queue.levels()
    }

    /// Returns whether an item on a level above `level` is queued, which then outranks a running
    /// item of that level. In `steal`, may return `true` after other VPs have taken the item.
    #[inline]
    pub fn has_above(self, level: u8) -> bool {
        self.queue.has_above(level)
    }

    /// Calls [`RunQueue::peek`].
    #[inline]
    pub fn peek(self) -> Option<NonNull<T>> {
        self.queue.peek()
    }

    /// Calls [`RunQueue::first_key`].
    pub fn first_key(self, level: u8) -> Option<u64> {
        self.queue.first_key(level)
    }

    /// Calls [`RunQueue::loosen`].
    pub fn loosen(self) {
        self.queue.loosen()
    }

    /// Calls [`RunQueue::waiting`].
    pub fn waiting(self) -> Option<u8> {
        self.queue.waiting()
    }

    /// Calls [`RunQueue::hand`].
    pub fn hand(self, level: u8) -> Option<NonNull<T>> {
        self.queue.hand(level)
    }

    /// Calls [`RunQueue::adopt`].
    ///
    /// # Safety
    /// Same requirements as [`RunQueue::adopt`].
    pub unsafe fn adopt(self, item: NonNull<T>) {
        // SAFETY: upheld by the caller.
        unsafe { self.queue.adopt(item) }
    }

    /// Calls [`RunQueue::given`].
    pub fn given(self) -> Option<(usize, u8)> {
        self.queue.given()
    }

    /// Calls [`RunQueue::held`].
    pub fn held(self) -> Option<u8> {
        self.queue.held()
    }

    /// Calls [`RunQueue::stats`].
    pub fn stats(self) -> Stats {
        self.queue.stats()
    }
}
