//! The end of a microprocess and its joiner: one word.
//!
//! ```text
//!   RUNNING ---join---> waiter's address ---+
//!      |  \                                 | stack left: the waiter is woken
//!      |   +---------stack left-------------+--> DONE --outcome taken--> (released by the taker)
//!      +--handle dropped--> DETACHED --stack left, outcome dropped--> (released)
//! ```
//! The outcome lies on the ended microprocess's stack, and the word says DONE only when that stack
//! was left: then outcome and slot are the handle's. If the handle goes at the last moment, after
//! the microprocess has looked for it, the microprocess is continued once more to drop its outcome
//! itself: no code of the program runs inside the loop.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kumihimo_arch::tls;
use kumihimo_policy::Why;
use kumihimo_queue::Origin;
use kumihimo_resource::id::Kind;
use kumihimo_resource::table::table;

use crate::kernel_thread::no_events::NoEvents;
use crate::lifecycle::scope_data::ScopeData;
use crate::memory::pool;
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::foreign_thread::ForeignThread;
use crate::microprocess::identity;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::state::Wake;
use crate::microprocess::wait_reason::Wait;
use crate::microprocess::waiter::Who;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::vp::{Vp, bump};
use crate::wait::park;

const RUNNING: usize = 0;
const DETACHED: usize = 1;
const DONE: usize = 2;
/// A foreign waiter: an `Arc<ForeignThread>` that the word owns. Microprocess waiters are record
/// addresses, 64-aligned.
const FOREIGN: usize = 1;
const FIRST_ADDRESS: usize = 4096;

#[inline]
pub(crate) fn begin(mp: &Mp) {
    mp.join.store(RUNNING, Ordering::Relaxed);
}

/// Whether the handle is gone already.
#[inline]
pub(crate) fn is_detached(mp: &Mp) -> bool {
    mp.join.load(Ordering::Acquire) == DETACHED
}

#[inline]
pub(crate) fn is_finished(mp: &Mp) -> bool {
    mp.join.load(Ordering::Acquire) == DONE
}

impl Carrier {
    /// The running microprocess has ended and leaves its stack. Comes back only if its handle went
    /// meanwhile: to drop the outcome, and then call this again.
    ///
    /// If somebody waits for it that is the next to run here, without a detour through the queue.
    pub(crate) fn end(self, mp: &'static Mp) {
        let vp = self.vp();
        let waiter = mp.join.load(Ordering::Relaxed);
        if waiter >= FIRST_ADDRESS && waiter & FOREIGN == 0 {
            let next = micro_waiter(waiter);
            if next.reference().wake() == Wake::Queue {
                let place = vp.place(next, Why::Woken);
                if vp.would_run_next(place.level) {
                    self.switch(next, AfterSwitch::FinishToJoiner);
                    return;
                }
                // Not the next to run: `after_finish` leaves it a permit, which ends a later park
                // early.
                vp.push_front(next, place);
            }
        }
        self.leave(AfterSwitch::Finish);
    }

    /// On the next stack: the ended one's is left. `woken`: the joiner that [`Carrier::end`] has
    /// woken and that runs here.
    ///
    /// Any other joiner is woken, also one that runs here: it may have enrolled after `end` looked,
    /// and have come to this VP before it parked.
    #[inline]
    pub(crate) fn after_finish(&self, mp: &'static Mp, woken: Option<*const Mp>) {
        let vp = self.vp();
        if mp.join.load(Ordering::Relaxed) == DETACHED && !mp.outcome_dropped.get() {
            vp.make_ready(mp, Why::Yielded, Origin::Yield);
            return;
        }
        let (scope, panicked) = (mp.scope.take(), mp.panicked.get());
        mp.state.finish();
        bump(&vp.counters.ended);
        // AcqRel: what was done on the stack, the outcome above all, happens before its taking and
        // before the slot's next use.
        match mp.join.swap(DONE, Ordering::AcqRel) {
            RUNNING => {}
            DETACHED if mp.outcome_dropped.get() => release(vp, mp),
            DETACHED => {
                // In between.
                mp.join.store(DETACHED, Ordering::Relaxed);
                mp.scope.set(scope);
                mp.state.undo_finish();
                vp.uncount_end();
                vp.make_ready(mp, Why::Yielded, Origin::Yield);
                return;
            }
            // A waiter that `end` woke has seen nothing yet, and would get one permit too many.
            waiter if woken.is_some_and(|woken| woken.expose_provenance() == waiter) => {}
            waiter => wake(vp, waiter),
        }
        if let Some(scope) = scope {
            // SAFETY: the scope waits for this call.
            unsafe { ScopeData::of_head(scope) }.child_ends(panicked);
        }
    }
}

/// The record behind a waiter's address.
fn micro_waiter(waiter: usize) -> &'static Mp {
    // SAFETY: a record's address, put there by `enrol`; records live for ever. If that life has
    // ended meanwhile, its successor gets a wake-up that it did not ask for: parks may end
    // spuriously.
    unsafe { &*std::ptr::with_exposed_provenance::<Mp>(waiter) }
}

fn wake(vp: &Vp, waiter: usize) {
    debug_assert!(waiter >= FIRST_ADDRESS);
    if waiter & FOREIGN != 0 {
        // SAFETY: the word owned this count; it was put there by `enrol`.
        let f = unsafe {
            Arc::from_raw(std::ptr::with_exposed_provenance::<ForeignThread>(waiter & !FOREIGN))
        };
        f.wake();
    } else {
        vp.wake(micro_waiter(waiter).reference());
    }
}

fn release(vp: &Vp, mp: &'static Mp) {
    clean(mp);
    if identity::close(vp.instance().table, mp) {
        let _held = vp.instance().table.enter(Kind::STACK);
        vp.pool.give(mp);
    }
}

/// Waits until the outcome of a microprocess is there, or `deadline`. Blocks the microprocess.
/// False at the deadline or when cancelled.
#[inline]
pub(crate) fn wait(who: Ref, deadline: Option<std::time::Instant>) -> bool {
    let word = &who.mp.join;
    loop {
        if is_finished(who.mp) {
            return true;
        }
        if crate::wait::cancel::would_unwind()
            || deadline.is_some_and(|d| std::time::Instant::now() >= d)
        {
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
            let over = crate::wait::cancel::would_unwind()
                || deadline.is_some_and(|d| std::time::Instant::now() >= d);
            if over
                && word.compare_exchange(me, RUNNING, Ordering::AcqRel, Ordering::Acquire).is_ok()
            {
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
        drop(unsafe {
            Arc::from_raw(std::ptr::with_exposed_provenance::<ForeignThread>(me & !FOREIGN))
        });
    }
}

/// After the outcome was taken out: the slot may be used again.
#[inline]
pub(crate) fn taken(mp: &'static Mp) {
    match Carrier::current() {
        Some(carrier) => release(carrier.vp(), mp),
        None => {
            clean(mp);
            // The runtime may have ended, the process's pool has not.
            let _quiet = NoEvents::new();
            if identity::close(table(), mp) {
                let _held = table().enter(Kind::STACK);
                pool::give_outside(mp);
            }
        }
    }
}

/// The handle goes without having joined. True: the outcome is there and the caller's to take.
#[must_use]
pub(crate) fn detach(mp: &Mp) -> bool {
    mp.join.compare_exchange(RUNNING, DETACHED, Ordering::AcqRel, Ordering::Acquire).is_err()
}

/// Makes an ended microprocess's record and block as good as new. Called by the releaser, off its
/// stack.
fn clean(mp: &'static Mp) {
    mp.cancel_masked.set(0);
    mp.token.store(0, Ordering::Relaxed);
    if mp.inherited().is_some() {
        mp.set_inherited(None);
    }
    // SAFETY: ended, so its name is ours.
    if unsafe { (*mp.name.get()).take() }.is_some() {
        mp.set_label(None);
    }
    let fs = mp.fs.get();
    if fs != 0 {
        let (lo, hi) = pool::bounds(mp);
        // SAFETY: its destructors have run and nobody runs on it.
        unsafe { tls::get().recycle(fs as *mut u8, lo, hi) };
    }
}
