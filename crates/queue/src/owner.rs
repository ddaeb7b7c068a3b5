//! The owner's side of one VP's queue.

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::any_queue::AnyQueue;
use crate::node::{Node, Origin, Place};
use crate::part::injector::Chain;
use crate::part::shared_side::Stats;
use crate::run_queue::{RunQueue, Taker};

/// The owner's side of one VP's queue. Not `Send`: the VP's record, which moves between kernel
/// threads, answers for that.
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
    /// [`RunQueue::push`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn push(self, item: NonNull<T>, place: Place, origin: Origin) {
        // SAFETY: as the caller promises.
        unsafe { self.queue.push(item, place, origin) }
    }

    /// [`RunQueue::pop`].
    #[inline]
    pub fn pop(self) -> Option<(NonNull<T>, u8)> {
        self.queue.pop()
    }

    /// [`RunQueue::pop_at_least`].
    #[inline]
    pub fn pop_at_least(self, level: u8) -> Option<(NonNull<T>, u8)> {
        self.queue.pop_at_least(level)
    }

    /// [`RunQueue::remove`].
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn remove(self, item: NonNull<T>) -> bool {
        // SAFETY: as the caller promises.
        unsafe { self.queue.remove(item) }
    }

    /// Moves an item that is queued here to another place, say after a change of its priority.
    /// `false`: it is not within reach (see [`RunQueue::remove`]); it is served by its old place
    /// once more.
    ///
    /// # Safety
    /// `item` is live. It may be anywhere.
    pub unsafe fn requeue(self, item: NonNull<T>, place: Place, origin: Origin) -> bool {
        // SAFETY: as the caller promises; once removed it is ours and in no queue.
        unsafe {
            let here = self.queue.remove(item);
            if here {
                self.queue.push(item, place, origin);
            }
            here
        }
    }

    /// [`RunQueue::exchange`].
    #[inline]
    #[must_use]
    pub fn exchange(self) -> Option<Taker> {
        self.queue.exchange()
    }

    /// [`RunQueue::surplus`].
    #[inline]
    #[must_use]
    pub fn surplus(self, someone_idle: bool) -> Option<Taker> {
        self.queue.surplus(someone_idle)
    }

    /// [`RunQueue::pull`].
    pub fn pull(self) -> bool {
        self.queue.pull()
    }

    /// [`RunQueue::has_visible_work`].
    pub fn has_visible_work(self) -> bool {
        self.queue.has_visible_work()
    }

    /// Whether nothing was injected: one relaxed load.
    #[inline]
    pub fn injector_is_empty(self) -> bool {
        self.queue.injector().is_empty()
    }

    /// Takes all that was injected, in the order in which it came. Each item is then held by the
    /// caller.
    #[inline]
    pub fn take_injected(self) -> Chain<T> {
        self.queue.injector().take()
    }

    /// [`RunQueue::len`].
    #[inline]
    pub fn len(self) -> usize {
        self.queue.len()
    }

    /// Whether nothing is queued here (`steal`: may be `false` although thieves emptied it).
    #[inline]
    pub fn is_empty(self) -> bool {
        self.queue.is_empty()
    }

    /// [`RunQueue::levels`].
    #[inline]
    pub fn levels(self) -> u64 {
        self.queue.levels()
    }

    /// Whether something is queued here on a higher level than this (`steal`: may say so although
    /// thieves took it): what a running one of this level is outranked by.
    #[inline]
    pub fn has_above(self, level: u8) -> bool {
        self.queue.has_above(level)
    }

    /// [`RunQueue::peek`].
    #[inline]
    pub fn peek(self) -> Option<NonNull<T>> {
        self.queue.peek()
    }

    /// [`RunQueue::loosen`].
    pub fn loosen(self) {
        self.queue.loosen()
    }

    /// [`RunQueue::waiting`].
    pub fn waiting(self) -> Option<u8> {
        self.queue.waiting()
    }

    /// [`RunQueue::hand`].
    pub fn hand(self, level: u8) -> Option<NonNull<T>> {
        self.queue.hand(level)
    }

    /// [`RunQueue::adopt`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn adopt(self, item: NonNull<T>) {
        // SAFETY: as the caller promises.
        unsafe { self.queue.adopt(item) }
    }

    /// [`RunQueue::given`].
    pub fn given(self) -> Option<(usize, u8)> {
        self.queue.given()
    }

    /// [`RunQueue::held`].
    pub fn held(self) -> Option<u8> {
        self.queue.held()
    }

    /// [`RunQueue::stats`].
    pub fn stats(self) -> Stats {
        self.queue.stats()
    }
}
