//! The word of a channel: a spin lock with room for one waiter.
//!
//! Most of the time a channel is empty and one waiter at most stands at it. Then the word alone
//! says so: a waiter puts itself there, and the thread that meets it takes it from there, each with
//! one compare-exchange and without a look at the state. A thread that finds anything else locks,
//! which moves a waiter from the word into the state's queues.
//!
//! ```text
//!   QUIET <-- stand / meet, withdraw --> RECEIVER|node, SENDER|node
//!   lock:   any but LOCKED --> LOCKED
//!   unlock: LOCKED --> QUIET (nothing buffered, no waiter, both ends open) or STATE (look inside)
//! ```
//!
//! A thread that `meet`s a node owns it until it stores the node's outcome. A node that is
//! withdrawn and put back between another's load and compare-exchange is as good as before: the
//! exchange says that it stands there now.
//!
//! Memory ordering: `stand` releases what the waiter wrote into its node, `meet` and `lock` acquire
//! it; the lock orders the state.

use crate::lockrank::{self, Rank};
use crate::shim::{AtomicPtr, NoEvents, spin_loop, yield_now};
use crate::waitlist::{Claimed, Node};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const QUIET: usize = 0;
const SIDE: usize = 3;
const STATE: usize = 4;
const LOCKED: usize = 5;

const _: () = assert!(align_of::<Node>() >= 8);

/// Which end a lone waiter stands at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Side {
    Receiver = 1,
    Sender = 2,
}

/// What the lock guards.
pub(crate) trait Contents {
    /// Whether a lone waiter may stand in the word.
    fn is_quiet(&self) -> bool;
    /// Queues the waiter that stood in the word.
    ///
    /// # Safety
    /// As [`Queue::insert`](crate::waitlist::Queue::insert).
    unsafe fn admit(&mut self, side: Side, node: &Node);
}

pub(crate) struct Lane<S: Contents> {
    word: AtomicPtr<Node>,
    state: UnsafeCell<S>,
    /// Lockers of a model wait here: loom would try every number of turns of a spinning one.
    #[cfg(loom)]
    turn: loom::sync::Mutex<()>,
}

// SAFETY: the word gives one holder at a time access to the state, and one meeter to a node; both
// hand-overs are ordered.
unsafe impl<S: Contents + Send> Sync for Lane<S> {}
// SAFETY: owning the lock is owning the state. A waiter in the word borrows the lane, so it does
// not move meanwhile.
unsafe impl<S: Contents + Send> Send for Lane<S> {}

// No panic leaves it locked or the state half changed: no code of the user runs under it.
impl<S: Contents> UnwindSafe for Lane<S> {}
impl<S: Contents> RefUnwindSafe for Lane<S> {}

fn standing(side: Side, node: &Node) -> *mut Node {
    ptr::from_ref(node).cast_mut().map_addr(|a| a | side as usize)
}

impl<S: Contents> Lane<S> {
    /// `state` is quiet.
    pub(crate) fn new(state: S) -> Lane<S> {
        debug_assert!(state.is_quiet());
        Lane {
            word: AtomicPtr::new(ptr::null_mut()),
            state: UnsafeCell::new(state),
            #[cfg(loom)]
            turn: loom::sync::Mutex::new(()),
        }
    }

    /// Takes the waiter that stands alone at `side`, if one does.
    #[inline]
    pub(crate) fn meet(&self, side: Side) -> Option<Claimed<'_>> {
        let word = self.word.load(Relaxed);
        if word.addr() & 7 != side as usize {
            return None;
        }
        self.word.compare_exchange(word, ptr::null_mut(), Acquire, Relaxed).ok()?;
        // SAFETY: a waiter in the word waits until it has an outcome or has withdrawn, and the
        // exchange says that it has not.
        Some(Claimed { node: unsafe { &*word.map_addr(|a| a & !SIDE) } })
    }

    /// A hint: nobody stands in the word and there is nothing in the state.
    #[inline]
    pub(crate) fn seems_quiet(&self) -> bool {
        self.word.load(Relaxed).addr() == QUIET
    }

    /// Puts the caller's node into the word, if the state is quiet and nobody stands there.
    ///
    /// # Safety
    /// As [`Queue::insert`](crate::waitlist::Queue::insert): the node stays where it is until it
    /// has an outcome, or [`withdraw`](Lane::withdraw) or a removal under the lock has succeeded.
    #[inline]
    pub(crate) unsafe fn stand(&self, side: Side, node: &Node) -> bool {
        self.word.load(Relaxed).addr() == QUIET
            && self
                .word
                .compare_exchange(ptr::null_mut(), standing(side, node), Release, Relaxed)
                .is_ok()
    }

    /// Takes the caller's node back out of the word. False: it is not, or no longer, there.
    pub(crate) fn withdraw(&self, side: Side, node: &Node) -> bool {
        // Acquire: should it have been in the state meanwhile, that was ordered by the lock.
        self.word.compare_exchange(standing(side, node), ptr::null_mut(), Acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn lock(&self) -> LaneGuard<'_, S> {
        // Others spin for it: its holder must not lose its virtual processor.
        let quiet = NoEvents::new();
        lockrank::acquire(Rank::List);
        #[cfg(loom)]
        let turn = self.turn.lock().unwrap();
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
                let mut guard = LaneGuard {
                    lane: self,
                    _quiet: quiet,
                    #[cfg(loom)]
                    _turn: turn,
                };
                let side = match word.addr() & 7 {
                    1 => Side::Receiver,
                    2 => Side::Sender,
                    _ => return guard,
                };
                // SAFETY: as in `meet`; the thread that put it there keeps `insert`'s promise.
                unsafe { guard.admit(side, &*word.map_addr(|a| a & !SIDE)) };
                return guard;
            }
        }
    }
}

pub(crate) struct LaneGuard<'a, S: Contents> {
    lane: &'a Lane<S>,
    #[cfg(loom)]
    _turn: loom::sync::MutexGuard<'a, ()>,
    _quiet: NoEvents,
}

impl<S: Contents> Deref for LaneGuard<'_, S> {
    type Target = S;
    #[inline]
    fn deref(&self) -> &S {
        // SAFETY: we hold the lock.
        unsafe { &*self.lane.state.get() }
    }
}

impl<S: Contents> DerefMut for LaneGuard<'_, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: we hold the lock, and `self` is borrowed exclusively.
        unsafe { &mut *self.lane.state.get() }
    }
}

impl<S: Contents> Drop for LaneGuard<'_, S> {
    #[inline]
    fn drop(&mut self) {
        let word = if self.is_quiet() { QUIET } else { STATE };
        self.lane.word.store(ptr::without_provenance_mut(word), Release);
        lockrank::release(Rank::List);
    }
}
