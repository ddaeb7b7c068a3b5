//! Channel lock: a spin lock whose word can hold one waiter.
//!
//! A channel is mostly empty, with at most one waiter. The word alone represents that state. A
//! waiter stores its node in the word, and its peer takes the node from the word, each with one
//! compare-exchange and without reading the locked state. In every other state a thread takes the
//! lock, which moves a waiter from the word into the state's queues.
//!
//! ```text
//!   IDLE <-- place_waiter / take_waiter, withdraw --> RECEIVER|node, SENDER|node
//!   lock:   any but LOCKED --> LOCKED
//!   unlock: LOCKED --> IDLE (nothing buffered, no waiter, both ends open) or STATE (look inside)
//! ```
//!
//! A thread that has taken a node with `take_waiter` owns it until it stores the node's outcome.
//! The compare-exchange is safe against ABA. A node may be withdrawn and placed again after the
//! load, but a successful exchange proves that it is in the word now.
//!
//! Memory ordering: `place_waiter` releases the waiter's writes to its node; `take_waiter` and
//! `lock` acquire them. The lock orders accesses to the state.

use crate::loom::{AtomicPtr, NoEvents, Turn, TurnGuard, spin_loop, yield_now};
use crate::wait::lockrank::{self, Rank};
use crate::wait::waitlist::{Claimed, Node};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const IDLE: usize = 0;
const SIDE: usize = 3;
const STATE: usize = 4;
const LOCKED: usize = 5;

const _: () = assert!(align_of::<Node>() >= 8);

/// End of the channel at which the waiter in the word waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Side {
    Receiver = 1,
    Sender = 2,
}

/// State that a [`ChannelLock`] guards.
pub(crate) trait LockedState {
    /// Whether the state is idle, so that the word may hold a waiter.
    fn is_idle(&self) -> bool;
    /// Queues the waiter that the word held.
    ///
    /// # Safety
    /// As [`Queue::insert`](crate::wait::waitlist::Queue::insert).
    unsafe fn enqueue_waiter(&mut self, side: Side, node: &Node);
}

pub(crate) struct ChannelLock<S: LockedState> {
    word: AtomicPtr<Node>,
    state: UnsafeCell<S>,
    turn: Turn,
}

// SAFETY: the word gives one holder at a time access to the state, and one claiming thread access
// to a node. Release and acquire on the word order both hand-overs.
unsafe impl<S: LockedState + Send> Sync for ChannelLock<S> {}
// SAFETY: owning the lock is owning the state. A waiter in the word borrows the lock, which
// therefore does not move while the waiter is there.
unsafe impl<S: LockedState + Send> Send for ChannelLock<S> {}

// No panic leaves the lock held or the state half changed: no user code runs under the lock.
impl<S: LockedState> UnwindSafe for ChannelLock<S> {}
impl<S: LockedState> RefUnwindSafe for ChannelLock<S> {}

fn tagged(side: Side, node: &Node) -> *mut Node {
    ptr::from_ref(node).cast_mut().map_addr(|a| a | side as usize)
}

impl<S: LockedState> ChannelLock<S> {
    /// Creates an unlocked channel lock. `state` must be idle.
    pub(crate) fn new(state: S) -> ChannelLock<S> {
        debug_assert!(state.is_idle());
        ChannelLock {
            word: AtomicPtr::new(ptr::null_mut()),
            state: UnsafeCell::new(state),
            turn: Turn::new(),
        }
    }

    /// Takes the waiter out of the word, if the word holds a waiter at `side`.
    #[inline]
    pub(crate) fn take_waiter(&self, side: Side) -> Option<Claimed<'_>> {
        let word = self.word.load(Relaxed);
        if word.addr() & 7 != side as usize {
            return None;
        }
        self.word.compare_exchange(word, ptr::null_mut(), Acquire, Relaxed).ok()?;
        // SAFETY: a waiter stays until it has an outcome or has withdrawn, and the successful
        // exchange proves that the node was still in the word.
        Some(Claimed { node: unsafe { &*word.map_addr(|a| a & !SIDE) } })
    }

    /// Returns a hint whether the state is idle and the word holds no waiter.
    #[inline]
    pub(crate) fn seems_idle(&self) -> bool {
        self.word.load(Relaxed).addr() == IDLE
    }

    /// Stores the caller's node in the word, if the state is idle and the word holds no waiter.
    /// Returns whether it did.
    ///
    /// # Safety
    /// As [`Queue::insert`](crate::wait::waitlist::Queue::insert): the node must not move until it
    /// has an outcome, or until [`withdraw`](ChannelLock::withdraw) or a removal under the lock has
    /// succeeded.
    #[inline]
    pub(crate) unsafe fn place_waiter(&self, side: Side, node: &Node) -> bool {
        self.word.load(Relaxed).addr() == IDLE
            && self
                .word
                .compare_exchange(ptr::null_mut(), tagged(side, node), Release, Relaxed)
                .is_ok()
    }

    /// Takes the caller's node out of the word. Returns false if the word does not hold it.
    pub(crate) fn withdraw(&self, side: Side, node: &Node) -> bool {
        // Acquire: orders this thread after a lock holder that moved the node into the state and
        // back.
        self.word.compare_exchange(tagged(side, node), ptr::null_mut(), Acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn lock(&self) -> ChannelLockGuard<'_, S> {
        // Other threads spin for this lock, so events are off: the holder must keep its VP.
        let quiet = NoEvents::new();
        lockrank::acquire(Rank::List);
        let turn = self.turn.wait();
        let mut turns = 0u32;
        loop {
            let word = self.word.load(Relaxed);
            if word.addr() == LOCKED {
                turns += 1;
                // The kernel may have preempted the holder's kernel thread, which then needs this
                // core.
                if turns.is_multiple_of(128) {
                    yield_now()
                } else {
                    spin_loop()
                }
                continue;
            }
            if self
                .word
                .compare_exchange(word, ptr::without_provenance_mut(LOCKED), AcqRel, Relaxed)
                .is_ok()
            {
                let mut guard = ChannelLockGuard { lock: self, _quiet: quiet, _turn: turn };
                let side = match word.addr() & 7 {
                    1 => Side::Receiver,
                    2 => Side::Sender,
                    _ => return guard,
                };
                // SAFETY: as in `take_waiter`; the thread that placed the node keeps the contract
                // of `insert`.
                unsafe { guard.enqueue_waiter(side, &*word.map_addr(|a| a & !SIDE)) };
                return guard;
            }
        }
    }
}

pub(crate) struct ChannelLockGuard<'a, S: LockedState> {
    lock: &'a ChannelLock<S>,
    _turn: TurnGuard<'a>,
    _quiet: NoEvents,
}

impl<S: LockedState> Deref for ChannelLockGuard<'_, S> {
    type Target = S;
    #[inline]
    fn deref(&self) -> &S {
        // SAFETY: we hold the lock.
        unsafe { &*self.lock.state.get() }
    }
}

impl<S: LockedState> DerefMut for ChannelLockGuard<'_, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: we hold the lock, and `self` is borrowed exclusively.
        unsafe { &mut *self.lock.state.get() }
    }
}

impl<S: LockedState> Drop for ChannelLockGuard<'_, S> {
    #[inline]
    fn drop(&mut self) {
        let word = if self.is_idle() { IDLE } else { STATE };
        self.lock.word.store(ptr::without_provenance_mut(word), Release);
        lockrank::release(Rank::List);
    }
}
