//! Waiting and waking: [`park`] and [`Waiter::wake`], on which every blocking operation in `sync`
//! and `io` is built.
//!
//! The permit here belongs to the runtime. It may be left over or consumed spuriously, so callers
//! always loop on a condition of their own. The user's `thread::park` token is a separate word
//! (`thread.rs`), as in std, so that a mutex never consumes a token that `unpark` left.

use std::sync::atomic::Ordering;
use std::time::Instant;

use kumihimo_policy::Priority;
use kumihimo_resource::id::Kind;

use crate::kernel_thread::gs_record::{self, Standing};
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::foreign_thread::foreign;
use crate::microprocess::protocol::state::Wake;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::wait_reason::Wait;
use crate::microprocess::waiter::{NO_MARK, Waiter, Who, mark_of};
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance;
use crate::upcall::sticky;
use crate::wait::tracing_spans;

/// Returns the caller as a waiter that can be woken.
///
/// Inside `blocking` the kernel thread itself waits, so the returned waiter is the kernel thread.
#[inline]
pub fn current() -> Waiter {
    match if waits_as_microprocess() { gs_record::current_mp() } else { None } {
        Some(mp) => Waiter::of(mp.reference()),
        None => Waiter::of_foreign(foreign()),
    }
}

/// Whether the caller runs on a virtual processor, so that waiting blocks the microprocess only.
#[inline]
pub fn on_vp() -> bool {
    gs_record::standing() == Standing::OnVp
}

/// Whether the caller waits as a microprocess. False on a foreign kernel thread and inside
/// `blocking`.
#[inline]
pub fn waits_as_microprocess() -> bool {
    matches!(gs_record::standing(), Standing::OnVp | Standing::Sticky)
}

/// Whether the caller waits as a microprocess, and may do so here: not in a section without events
/// ([`NoEvents`](crate::NoEvents)), in a signal handler of the runtime, or in code of the program
/// that the runtime calls between two microprocesses.
#[inline]
pub fn may_switch() -> bool {
    // SAFETY: a microprocess's standing is not `Foreign`.
    waits_as_microprocess() && unsafe { gs_record::may_switch_here() }
}

/// Whether the caller is a microprocess that shares its kernel threads with others.
pub fn is_microprocess() -> bool {
    gs_record::standing() != Standing::Foreign
}

/// Returns the number of VPs in use of the runtime that runs the caller; `None` where [`on_vp`] is
/// false.
#[inline]
pub fn vps() -> Option<usize> {
    match Carrier::current() {
        Some(carrier) => Some(carrier.vp().instance().open()),
        // The VP was taken over while the caller was in the kernel.
        None if on_vp() => instance::visit(|i| i.map(|i| i.open())),
        None => None,
    }
}

/// Whether a kernel thread that sleeps in a system call loses its VP automatically, without an
/// announcement. True if the event source reports such sleeps, or if the caller has no VP that it
/// could stall. False with event source `off`.
#[inline]
pub fn sleeps_are_told() -> bool {
    instance::hears_of_sleeps() || Carrier::current().is_none()
}

/// Blocks the caller until it is woken or the deadline passes. May return spuriously.
///
/// Blocks the microprocess. On a foreign kernel thread, inside `blocking`, and for a sticky
/// microprocess (one that blocks often in calls unknown to the runtime,
/// [`crate::api::runtime::Builder::sticky`]), blocks the kernel thread. Not a cancellation point,
/// but a cancel request ends the wait. `why` is for reports only. Everything before `wake` in the
/// waker happens before the return of `park`.
#[inline]
pub fn park(why: Wait, deadline: Option<Instant>) {
    let _told = tracing_spans::WaitSpan::begin(why);
    let why = why.encode();
    match Carrier::regain_to_wait() {
        Some(carrier) if carrier.is_running() => {
            if deadline.is_none() && !runner(&carrier).bounded.get() {
                park_micro(carrier, why);
            } else {
                park_micro_until(carrier, why, deadline);
            }
        }
        _ => park_on_kernel_thread(why, deadline),
    }
}

#[cold]
fn park_on_kernel_thread(why: (u8, usize), deadline: Option<Instant>) {
    match sticky::current() {
        Some((kt, mp)) => {
            if sticky::park(kt, mp, why, deadline) {
                // The caller's next wait for the same is one on a VP, which needs no kernel thread.
                Carrier::obtain();
            }
        }
        None => foreign().park(deadline),
    }
}

/// Returns the record of the running microprocess.
#[inline(always)]
fn runner(carrier: &Carrier) -> &'static Mp {
    // SAFETY: not null (checked by the callers): the running microprocess's record, which lives for
    // ever.
    unsafe { &*carrier.kernel_thread().current.get() }
}

// A frame of its own for the switch: the lines of this frame must be cached when the microprocess
// continues.
#[inline(never)]
fn park_micro(carrier: Carrier, why: (u8, usize)) {
    let mp = runner(&carrier);
    if !mp.state.take_permit() {
        carrier.vp().note_wait(mp, why);
        carrier.leave(AfterSwitch::Park).vp().finish_wait(mp);
    }
}

#[cold]
fn park_micro_until(carrier: Carrier, why: (u8, usize), deadline: Option<Instant>) {
    let vp = carrier.vp();
    let mp = runner(&carrier);
    // A scope's deadline cancels its children where they wait, but only once: a child that defers
    // its cancellation (in a lock, or `masked`) may wait on.
    let bound =
        mp.scope_deadline().filter(|b| deadline.is_none_or(|d| *b < d) && !mp.state.is_cancelled());
    let Some(deadline) = bound.or(deadline) else { return park_micro(carrier, why) };
    if mp.state.take_permit() {
        return;
    }
    vp.note_wait(mp, why);
    let at = vp.instance().at(deadline);
    if at <= vp.instance().now() {
        if bound.is_some() {
            mp.state.cancel(mp.state.generation());
            return;
        }
        // Others run nevertheless: a caller that polls with deadlines in the past would starve
        // them.
        carrier.give_way(kumihimo_policy::Why::Yielded);
        return;
    }
    let armed_at = vp.index;
    {
        // A timer is a resource: opened here, closed by the VP that finds it due or stale.
        let _held = vp.instance().table.enter_own(Kind::TIMER, &mp.claim);
        vp.timers().arm(mp.reference(), at);
    }
    vp.turn_clock.sooner(at);
    mp.wait_kind.store(mp.wait_kind.load(Ordering::Relaxed) | Wait::TIMED, Ordering::Relaxed);
    let number = mp.timer.load(Ordering::Relaxed);
    let carrier = carrier.leave(AfterSwitch::Park);
    carrier.vp().finish_wait(mp);
    if carrier.vp().instance().now() < at {
        mp.timer.store(number.wrapping_add(1), Ordering::Relaxed);
        if carrier.vp().index == armed_at {
            carrier.vp().timers().disarmed();
        }
    } else if bound.is_some() {
        mp.state.cancel(mp.state.generation());
    }
}

impl Waiter {
    /// Returns a number for the calling microprocess that is not 0, is below 2^62 and is unique
    /// among the living microprocesses. Lock words store it, and [`of_mark`](Waiter::of_mark)
    /// converts it back. Valid only where [`waits_as_microprocess`] is true.
    #[inline]
    pub fn mark() -> u64 {
        debug_assert!(waits_as_microprocess());
        gs_record::current_mp().map_or(NO_MARK, mark_of)
    }

    /// Ends the wait, or leaves one permit that ends the next wait. Everything before this call
    /// happens before the return of `park`.
    ///
    /// Does not switch, so it may be called while a short lock is held. Lock-free.
    #[inline]
    pub fn wake(&self) {
        match self.who() {
            Who::Micro(who) => match Carrier::current() {
                Some(carrier) => carrier.vp().wake(*who),
                None => wake_from_outside(*who),
            },
            Who::Foreign(f) => f.wake(),
        }
    }

    /// As [`wake`](Waiter::wake), with the hint that the caller is about to block: the woken
    /// microprocess runs next, on the caller's VP.
    #[inline]
    pub fn wake_sync(&self) {
        match self.who() {
            Who::Micro(who) => match Carrier::current() {
                Some(carrier) => carrier.vp().wake_next(*who),
                None => wake_from_outside(*who),
            },
            Who::Foreign(f) => f.wake(),
        }
    }

    /// Sets the inherited priority: the effective priority becomes the maximum of the waiter's own
    /// priority and `p`. Does nothing for foreign threads and ended microprocesses.
    pub fn set_inherited(&self, p: Option<u8>) {
        if let Who::Micro(who) = self.who()
            && who.is_alive()
            && who.mp.inherited() != p
        {
            who.mp.set_inherited(p.map(|p| p.min(kumihimo_policy::Priority::HIGHEST.get())));
            crate::scheduler::reprioritise::changed(*who);
        }
    }

    /// Sets the waiter's own priority, as `Thread::set_priority` does, but is not a switch point.
    /// For holders of a lock, and for scheduling steps of a VP. Does nothing for foreign threads.
    pub fn set_priority(&self, priority: Priority) {
        if let Who::Micro(who) = self.who()
            && who.is_alive()
        {
            crate::scheduler::reprioritise::set(*who, priority);
        }
    }
}

/// Wakes a microprocess from a kernel thread that carries no VP, through the injector of the VP on
/// which it last ran.
#[cold]
fn wake_from_outside(who: Ref) {
    instance::visit(|instance| {
        // Without an instance, every parked microprocess has been abandoned.
        if let Some(instance) = instance
            && who.wake() == Wake::Queue
        {
            instance.time_wake(who.mp);
            instance.inject(usize::from(who.mp.home.load(Ordering::Relaxed)), who.mp);
        }
    });
}
