//! End and join of a microprocess, coordinated by one word of its record.
//!
//! ```text
//!   RUNNING ---join---> waiter's address ---+
//!      |  \                                 | stack left: the waiter is woken
//!      |   +---------stack left-------------+--> DONE --outcome taken--> (released by the taker)
//!      +--handle dropped--> DETACHED --stack left, outcome dropped--> (released)
//! ```
//! The outcome is on the ended microprocess's stack. The word becomes DONE only after that stack
//! was left; then the handle owns outcome and slot. The handle may be dropped between the
//! microprocess's check and that point. Then the microprocess is continued once more to drop its
//! outcome itself, because the switch loop must not run code of the program.

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
use crate::microprocess::protocol::state::Wake;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::wait_reason::Wait;
use crate::microprocess::waiter::Who;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::vp::{Vp, bump};
use crate::wait::park;

const RUNNING: usize = 0;
const DETACHED: usize = 1;
const DONE: usize = 2;
/// Tag of a foreign waiter: the word owns an `Arc<ForeignThread>`. Microprocess waiters are record
/// addresses, which are 64-aligned.
const FOREIGN: usize = 1;
const FIRST_ADDRESS: usize = 4096;

#[inline]
pub(crate) fn begin(mp: &Mp) {
    mp.join.store(RUNNING, Ordering::Relaxed);
}

/// Whether the handle was dropped already.
#[inline]
pub(crate) fn is_detached(mp: &Mp) -> bool {
    mp.join.load(Ordering::Acquire) == DETACHED
}

#[inline]
pub(crate) fn is_finished(mp: &Mp) -> bool {
    mp.join.load(Ordering::Acquire) == DONE
}

impl Carrier {
    /// Leaves the stack of the running microprocess, which has ended. Returns only if the handle
    /// was dropped meanwhile; the caller then drops the outcome and calls this again.
    ///
    /// A microprocess that waits for the end runs next on this VP, without passing through the
    /// queue.
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
                // The joiner does not run next. `after_finish` wakes it again, which leaves a
                // permit that ends a later park early.
                vp.push_front(next, place);
            }
        }
        self.leave(AfterSwitch::Finish);
    }

    /// Finishes an ended microprocess on the next stack, after its own was left. `woken` is the
    /// joiner that [`Carrier::end`] has woken and that runs here.
    ///
    /// Any other joiner is woken here, even if it runs here. It may have enrolled after the check
    /// in `end`, and have come to this VP before it parked.
    #[inline]
    pub(crate) fn after_finish(&self, mp: &'static Mp, woken: Option<*const Mp>) {
        let vp = self.vp();
        if mp.join.load(Ordering::Relaxed) == DETACHED && !mp.outcome_dropped.get() {
            vp.make_ready(mp, Why::Yielded, Origin::Yield);
            return;
        }
        let (scope, panicked) = (mp.scope(), mp.panicked.get());
        mp.set_scope(None);
        mp.state.finish();
        bump(&vp.counters.ended);
        // AcqRel: everything that was done on the stack, in particular the write of the outcome,
        // happens before the outcome is taken and before the slot is reused.
        match mp.join.swap(DONE, Ordering::AcqRel) {
            RUNNING => {}
            DETACHED if mp.outcome_dropped.get() => release(vp, mp),
            DETACHED => {
                // The handle was dropped between the check above and the swap.
                mp.join.store(DETACHED, Ordering::Relaxed);
                mp.set_scope(scope);
                mp.state.undo_finish();
                vp.uncount_end();
                vp.make_ready(mp, Why::Yielded, Origin::Yield);
                return;
            }
            // The waiter that `end` woke has not run yet, and a second wake-up would leave it a
            // superfluous permit.
            waiter if woken.is_some_and(|woken| woken.expose_provenance() == waiter) => {}
            waiter => wake(vp, waiter),
        }
        if let Some(scope) = scope {
            // SAFETY: the scope waits for this call, so it still exists.
            unsafe { ScopeData::of_head(scope) }.child_ends(panicked);
        }
    }
}

/// Returns the record at a waiter's address.
fn micro_waiter(waiter: usize) -> &'static Mp {
    // SAFETY: a record's address, stored by `enrol`; records live for ever. If that microprocess
    // has ended meanwhile, the record's next microprocess gets a superfluous wake-up: parks may
    // return spuriously.
    unsafe { &*std::ptr::with_exposed_provenance::<Mp>(waiter) }
}

fn wake(vp: &Vp, waiter: usize) {
    debug_assert!(waiter >= FIRST_ADDRESS);
    if waiter & FOREIGN != 0 {
        // SAFETY: the word owned this reference count, which `enrol` created.
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

/// Waits until the microprocess has ended and its outcome can be taken. Blocks the microprocess.
/// Returns false at `deadline`, when cancelled, and when the caller has something else to do
/// ([`interrupt`](crate::wait::interrupt)).
#[inline]
pub(crate) fn wait(who: Ref, deadline: Option<std::time::Instant>) -> bool {
    let word = &who.mp.join;
    loop {
        if is_finished(who.mp) {
            return true;
        }
        if crate::wait::cancel::would_unwind()
            || crate::wait::interrupt::is_due()
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
                || crate::wait::interrupt::is_due()
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

/// Encodes the caller as a join word.
fn enrol() -> usize {
    match park::current().who() {
        Who::Micro(r) => std::ptr::from_ref(r.mp).expose_provenance(),
        Who::Foreign(f) => Arc::into_raw(f.clone()).expose_provenance() | FOREIGN,
    }
}

fn withdraw(me: usize) {
    if me & FOREIGN != 0 {
        // SAFETY: the reference count that `enrol` created; the word does not own it.
        drop(unsafe {
            Arc::from_raw(std::ptr::with_exposed_provenance::<ForeignThread>(me & !FOREIGN))
        });
    }
}

/// Releases the slot for reuse, after the outcome was taken out.
#[inline]
pub(crate) fn taken(mp: &'static Mp) {
    match Carrier::current() {
        Some(carrier) => release(carrier.vp(), mp),
        None => {
            clean(mp);
            // The runtime may have ended, but the process's pool still exists.
            let _quiet = NoEvents::new();
            if identity::close(table(), mp) {
                let _held = table().enter(Kind::STACK);
                pool::give_outside(mp);
            }
        }
    }
}

/// Detaches the handle, which is dropped without a join. Returns true if the microprocess has
/// ended: the caller must then take the outcome.
#[must_use]
pub(crate) fn detach(mp: &Mp) -> bool {
    mp.join.compare_exchange(RUNNING, DETACHED, Ordering::AcqRel, Ordering::Acquire).is_err()
}

/// Resets an ended microprocess's record and thread-local block for reuse. Called by the releasing
/// thread, off the ended stack.
fn clean(mp: &'static Mp) {
    mp.cancel_masked.set(0);
    mp.token.store(0, Ordering::Relaxed);
    if mp.inherited().is_some() {
        mp.set_inherited(None);
    }
    // SAFETY: the microprocess has ended, so the caller owns its name.
    drop(unsafe { (*mp.name.get()).take() });
    // The microprocess may also have named itself (`prctl`, pthread_setname_np(3)).
    if mp.label_len.load(Ordering::Relaxed) != 0 {
        mp.set_label(None);
    }
    let fs = mp.fs.get();
    if fs != 0 {
        let (lo, hi) = pool::bounds(mp);
        // SAFETY: the destructors of the block have run, and no thread uses it.
        unsafe { tls::get().recycle(fs as *mut u8, lo, hi) };
    }
}
