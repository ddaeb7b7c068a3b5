//! The end of a microprocess and the one who waits for it: one word.
//!
//! ```text
//!   RUNNING --handle dropped--> DETACHED ------------------------------------------> (stack left: released)
//!      |  \--join--> waiter's address --+
//!      | result is there                | result is there: the waiter is woken
//!      +--------------> FINISHED <------+
//!                        |     \--result taken--> TAKEN --stack left--> (released)
//!                        +--stack left--> LEFT --result taken--> (released)
//! ```
//! The result lies on the ended microprocess's stack. It can be taken while that stack is still being left: nobody uses the
//! part where it lies. The slot goes back to the pool when both have happened, by whoever comes second.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::carrier::Carrier;
use crate::park::{self, Foreign, Wait, Who};
use crate::pool;
use crate::record::{Mp, Ref};
use crate::vp::{Vp, bump};

const RUNNING: usize = 0;
const DETACHED: usize = 1;
const FINISHED: usize = 2;
const LEFT: usize = 3;
const TAKEN: usize = 4;
/// A foreign waiter: an `Arc<Foreign>` that the word owns. Microprocess waiters are record addresses, 64-aligned.
const FOREIGN: usize = 1;
const FIRST_ADDRESS: usize = 4096;

pub(crate) fn begin(mp: &Mp) {
    mp.join.store(RUNNING, Ordering::Relaxed);
}

/// Whether the handle is gone already.
pub(crate) fn is_detached(mp: &Mp) -> bool {
    mp.join.load(Ordering::Acquire) == DETACHED
}

pub(crate) fn is_finished(mp: &Mp) -> bool {
    matches!(mp.join.load(Ordering::Acquire), FINISHED | LEFT | TAKEN)
}

/// By the ending microprocess, its result written. False: nobody will take the result, so the caller drops it.
#[must_use]
pub(crate) fn finish(carrier: &Carrier, mp: &'static Mp) -> bool {
    if mp.join.compare_exchange(DETACHED, DETACHED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        return false;
    }
    // AcqRel: publishes the result; sees the waiter.
    match mp.join.swap(FINISHED, Ordering::AcqRel) {
        RUNNING => true,
        DETACHED => {
            // The handle went between the two steps. Nobody else changes the word any more.
            mp.join.store(DETACHED, Ordering::Relaxed);
            false
        }
        waiter => {
            wake(carrier.vp(), waiter);
            true
        }
    }
}

fn wake(vp: &Vp, waiter: usize) {
    debug_assert!(waiter >= FIRST_ADDRESS);
    if waiter & FOREIGN != 0 {
        // SAFETY: the word owned this count; it was put there by `enrol`.
        let f = unsafe { Arc::from_raw(std::ptr::with_exposed_provenance::<Foreign>(waiter & !FOREIGN)) };
        f.wake();
    } else {
        // SAFETY: a record's address put there by `enrol`; records live for ever. If that life has ended meanwhile, its successor
        // gets a permit it did not ask for: parks may end spuriously.
        let mp: &'static Mp = unsafe { &*std::ptr::with_exposed_provenance::<Mp>(waiter) };
        // It was waiting for exactly this and its data is here: it goes first, ahead of what has been waiting for a turn.
        vp.wake_next(mp.reference());
    }
}

/// On the next stack: the ended one's is left.
pub(crate) fn left(carrier: &Carrier, mp: &'static Mp) {
    let vp = carrier.vp();
    mp.state.finish();
    bump(&vp.counters.ended);
    // AcqRel: what was done on the stack happens before its next use.
    match mp.join.swap(LEFT, Ordering::AcqRel) {
        FINISHED => {}
        _ => release(vp, mp),
    }
}

fn release(vp: &Vp, mp: &'static Mp) {
    crate::spawn::clean(mp);
    mp.state.release();
    vp.pool.give(mp);
}

/// Waits until the result of `who` is there, or `deadline`. Blocks the microprocess. False at the deadline or when cancelled.
pub(crate) fn wait(who: Ref, deadline: Option<std::time::Instant>) -> bool {
    let word = &who.mp.join;
    loop {
        if is_finished(who.mp) {
            return true;
        }
        if crate::cancel::would_unwind() || deadline.is_some_and(|d| std::time::Instant::now() >= d) {
            return false;
        }
        let me = enrol();
        if word.compare_exchange(RUNNING, me, Ordering::AcqRel, Ordering::Acquire).is_err() {
            withdraw(me);
            continue;
        }
        loop {
            park::park(Wait::Join(who.id()), deadline);
            if word.load(Ordering::Acquire) != me {
                return true;
            }
            let over = crate::cancel::would_unwind() || deadline.is_some_and(|d| std::time::Instant::now() >= d);
            if over && word.compare_exchange(me, RUNNING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                withdraw(me);
                return false;
            }
        }
    }
}

/// The caller as a word.
fn enrol() -> usize {
    match park::current().who() {
        Who::Micro(r) => std::ptr::from_ref(r.mp).expose_provenance(),
        Who::Foreign(f) => Arc::into_raw(f.clone()).expose_provenance() | FOREIGN,
    }
}

fn withdraw(me: usize) {
    if me & FOREIGN != 0 {
        // SAFETY: `enrol`'s count, which the word does not own (any more).
        drop(unsafe { Arc::from_raw(std::ptr::with_exposed_provenance::<Foreign>(me & !FOREIGN)) });
    }
}

/// After the result was taken out (or dropped): the slot may be used again.
pub(crate) fn taken(mp: &'static Mp) {
    if mp.join.swap(TAKEN, Ordering::AcqRel) == LEFT {
        match Carrier::current() {
            Some(carrier) => release(carrier.vp(), mp),
            None => {
                crate::spawn::clean(mp);
                mp.state.release();
                pool::give_outside(mp);
            }
        }
    }
}

/// The handle goes without having joined. True: the result is there and is the caller's to drop, and then [`taken`] to call.
#[must_use]
pub(crate) fn detach(mp: &Mp) -> bool {
    mp.join.compare_exchange(RUNNING, DETACHED, Ordering::AcqRel, Ordering::Acquire).is_err()
}
