//! The word of a channel: a spin lock with room for one waiter.
//!
//! Most of the time a channel is empty and has one waiter at most. Then the word alone holds that
//! state: a waiter stores its node there, and its peer takes the node from there, each with one
//! compare-exchange and without reading the locked state. A thread that finds anything else locks,
//! which moves a waiter from the word into the state's queues.
//!
//! ```text
//!   IDLE <-- place_waiter / take_waiter, withdraw --> RECEIVER|node, SENDER|node
//!   lock:   any but LOCKED --> LOCKED
//!   unlock: LOCKED --> IDLE (nothing buffered, no waiter, both ends open) or STATE (look inside)
//! ```
//!
//! A thread that `take_waiter`s a node owns it until it stores the node's outcome. A node that is
//! withdrawn and put back between another's load and compare-exchange is as good as before: the
//! exchange proves that it is there now.
//!
//! Memory ordering: `place_waiter` releases what the waiter wrote into its node, `take_waiter` and
//! `lock` acquire it; the lock orders the state.

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

/// The end of the channel at which a lone waiter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Side {
    Receiver = 1,
    Sender = 2,
}

/// What the lock guards.
pub(crate) trait LockedState {
    /// Whether the word may hold a lone waiter.
    fn is_idle(&self) -> bool;
    /// Queues the waiter that stood in the word.
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

// SAFETY: the word gives one holder at a time access to the state, and one meeter to a node; both
// hand-overs are ordered.
unsafe impl<S: LockedState + Send> Sync for ChannelLock<S> {}
// SAFETY: owning the lock is owning the state. A waiter in the word borrows the lock, so it does
// not move meanwhile.
unsafe impl<S: LockedState + Send> Send for ChannelLock<S> {}

// No panic leaves it locked or the state half changed: no code of the user runs under it.
impl<S: LockedState> UnwindSafe for ChannelLock<S> {}
impl<S: LockedState> RefUnwindSafe for ChannelLock<S> {}

fn tagged(side: Side, node: &Node) -> *mut Node {
    ptr::from_ref(node).cast_mut().map_addr(|a| a | side as usize)
}

impl<S: LockedState> ChannelLock<S> {
    /// `state` is idle.
    pub(crate) fn new(state: S) -> ChannelLock<S> {
        debug_assert!(state.is_idle());
        ChannelLock {
            word: AtomicPtr::new(ptr::null_mut()),
            state: UnsafeCell::new(state),
            turn: Turn::new(),
        }
    }

    /// Takes the lone waiter at `side`, if there is one.
    #[inline]
    pub(crate) fn take_waiter(&self, side: Side) -> Option<Claimed<'_>> {
        let word = self.word.load(Relaxed);
        if word.addr() & 7 != side as usize {
            return None;
        }
        self.word.compare_exchange(word, ptr::null_mut(), Acquire, Relaxed).ok()?;
        // SAFETY: a waiter in the word waits until it has an outcome or has withdrawn, and the
        // exchange says that it has not.
        Some(Claimed { node: unsafe { &*word.map_addr(|a| a & !SIDE) } })
    }

    /// A hint: the word holds no waiter, and the state is idle.
    #[inline]
    pub(crate) fn seems_idle(&self) -> bool {
        self.word.load(Relaxed).addr() == IDLE
    }

    /// Stores the caller's node in the word, if the state is idle and the word holds no waiter.
    ///
    /// # Safety
    /// As [`Queue::insert`](crate::wait::waitlist::Queue::insert): the node stays where it is until
    /// it has an outcome, or [`withdraw`](ChannelLock::withdraw) or a removal under the lock has
    /// succeeded.
    #[inline]
    pub(crate) unsafe fn place_waiter(&self, side: Side, node: &Node) -> bool {
        self.word.load(Relaxed).addr() == IDLE
            && self
                .word
                .compare_exchange(ptr::null_mut(), tagged(side, node), Release, Relaxed)
                .is_ok()
    }

    /// Takes the caller's node back out of the word. False: it is not, or no longer, there.
    pub(crate) fn withdraw(&self, side: Side, node: &Node) -> bool {
        // Acquire: should it have been in the state meanwhile, that was ordered by the lock.
        self.word.compare_exchange(tagged(side, node), ptr::null_mut(), Acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn lock(&self) -> ChannelLockGuard<'_, S> {
        // Others spin for it: its holder must not lose its virtual processor.
        let quiet = NoEvents::new();
        lockrank::acquire(Rank::List);
        let turn = self.turn.wait();
        let mut turns = 0u32;
        loop {
            let word = self.word.load(Relaxed);
            if word.addr() == LOCKED {
                turns += 1;
                // The holder's kernel thread may have been preempted: then only giving up the core
                // helps.
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
                // SAFETY: as in `take_waiter`; the thread that put it there keeps `insert`'s
                // promise.
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
