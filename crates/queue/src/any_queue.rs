//! A run queue whose design is selected at run time.

use core::ptr::NonNull;

#[cfg(feature = "lab")]
use crate::design::locked::LockedQueue;
use crate::design::ring::RingQueue;
#[cfg(all(feature = "lab", not(loom)))]
use crate::design::steal::StealQueue;
use crate::node::{Node, Origin, Place};
use crate::part::injector::Injector;
use crate::part::protect_queue::ProtectQueue;
use crate::part::shared_side::Stats;
use crate::run_queue::{RunQueue, Taker};

/// A run queue of any design.
pub enum AnyQueue<'a, T: Node> {
    /// The papers' design P4.
    Ring(&'a RingQueue<T>),
    /// P4's conventional design.
    #[cfg(feature = "lab")]
    Locked(&'a LockedQueue<T>),
    /// Work stealing.
    #[cfg(all(feature = "lab", not(loom)))]
    Steal(&'a StealQueue<T>),
}

impl<T: Node> Clone for AnyQueue<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Node> Copy for AnyQueue<'_, T> {}

macro_rules! each {
    ($self:expr, $q:ident => $e:expr) => {
        match $self {
            AnyQueue::Ring($q) => $e,
            #[cfg(feature = "lab")]
            AnyQueue::Locked($q) => $e,
            #[cfg(all(feature = "lab", not(loom)))]
            AnyQueue::Steal($q) => $e,
        }
    };
}

impl<T: Node> RunQueue<T> for AnyQueue<'_, T> {
    #[inline]
    unsafe fn protect(&self) -> &mut ProtectQueue<T> {
        // SAFETY: upheld by the caller.
        each!(self, q => unsafe { q.protect() })
    }
    #[inline(always)]
    unsafe fn push(&self, item: NonNull<T>, place: Place, origin: Origin) {
        // SAFETY: upheld by the caller.
        each!(self, q => unsafe { q.push(item, place, origin) })
    }
    #[inline]
    fn pop(&self) -> Option<(NonNull<T>, u8)> {
        each!(self, q => q.pop())
    }
    #[inline]
    fn pop_at_least(&self, level: u8) -> Option<(NonNull<T>, u8)> {
        each!(self, q => q.pop_at_least(level))
    }
    #[inline]
    unsafe fn remove(&self, item: NonNull<T>) -> bool {
        // SAFETY: upheld by the caller.
        each!(self, q => unsafe { q.remove(item) })
    }
    #[inline]
    fn exchange(&self) -> Option<Taker> {
        each!(self, q => q.exchange())
    }
    #[inline]
    fn surplus(&self, someone_idle: bool) -> Option<Taker> {
        each!(self, q => q.surplus(someone_idle))
    }
    fn pull(&self) -> bool {
        each!(self, q => q.pull())
    }
    fn has_visible_work(&self) -> bool {
        each!(self, q => q.has_visible_work())
    }
    fn has_incoming(&self) -> bool {
        each!(self, q => q.has_incoming())
    }
    #[inline]
    fn len(&self) -> usize {
        each!(self, q => q.len())
    }
    #[inline]
    fn levels(&self) -> u64 {
        each!(self, q => q.levels())
    }
    #[inline]
    fn has_above(&self, level: u8) -> bool {
        each!(self, q => q.has_above(level))
    }
    #[inline]
    fn peek(&self) -> Option<NonNull<T>> {
        each!(self, q => q.peek())
    }
    fn first_key(&self, level: u8) -> Option<u64> {
        each!(self, q => q.first_key(level))
    }
    fn loosen(&self) {
        each!(self, q => q.loosen())
    }
    fn waiting(&self) -> Option<u8> {
        each!(self, q => q.waiting())
    }
    fn hand(&self, level: u8) -> Option<NonNull<T>> {
        each!(self, q => q.hand(level))
    }
    unsafe fn adopt(&self, item: NonNull<T>) {
        // SAFETY: upheld by the caller.
        each!(self, q => unsafe { q.adopt(item) })
    }
    fn given(&self) -> Option<(usize, u8)> {
        each!(self, q => q.given())
    }
    fn held(&self) -> Option<u8> {
        each!(self, q => q.held())
    }
    #[inline]
    fn injector(&self) -> &Injector<T> {
        each!(self, q => q.injector())
    }
    fn shown(&self) -> (usize, u64) {
        each!(self, q => q.shown())
    }
    fn stats(&self) -> Stats {
        each!(self, q => q.stats())
    }
}

pub(crate) use each;
