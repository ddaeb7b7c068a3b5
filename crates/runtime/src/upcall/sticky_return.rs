//! How a sticky microprocess gets a VP again: it is recalled, hardly blocks any more, or ends.
//!
//! A bound one ([`crate::upcall::bind`]) gets none, except to wait while it is suspended and to
//! end.

use std::sync::atomic::Ordering;

use crate::kernel_thread::gs_record::{KernelThread, Standing, standing};
use crate::microprocess::record::Mp;
use crate::scheduler::carrier::Carrier;
use crate::upcall::sticky::{current, end, is_recalled, voluntary_switches};
use crate::upcall::{bind, bound, handoff};

/// Number of yields in a row after which the runtime checks whether the microprocess still blocks
/// elsewhere.
const YIELDS: u8 = 64;

/// Ends the stickiness of the caller, which waits for its turn on a VP. May switch. Returns `None`
/// if the caller is bound.
#[cold]
pub(crate) fn leave(kt: &KernelThread, mp: &'static Mp) -> Option<Carrier> {
    if mp.sticky.is_bound.get() {
        if mp.state.is_suspended() && !kt.is_in_handler() {
            bind::stop_here(kt, mp);
        }
        return None;
    }
    end(kt.instance(), kt, mp);
    Some(bound::return_to_vp())
}

/// Returns a microprocess that has run its closure to a VP, where it ends. The kernel thread of a
/// bound one ends, too.
pub(crate) fn return_to_end() -> Carrier {
    if current().is_none()
        && let Some(carrier) = Carrier::obtain()
    {
        return carrier;
    }
    let (kt, mp) = current().expect("a microprocess can have a VP, or is bound");
    if mp.sticky.is_bound.replace(false) {
        // It cannot be undone everywhere what a bound one did: no other kernel thread may get it.
        mp.reset_attributes();
    }
    end(kt.instance(), kt, mp);
    bound::return_to_vp()
}

/// Moves the caller to a VP if it is sticky and was recalled. Called when it enters the runtime.
#[cold]
pub(crate) fn return_if_recalled() -> Option<Carrier> {
    let (kt, mp) = current()?;
    if is_recalled(kt.instance(), mp) { leave(kt, mp) } else { None }
}

/// Moves the caller to a VP if it is sticky and hardly blocks outside of the runtime any more.
/// Called when it is about to wait in the runtime.
#[cold]
pub(crate) fn leave_to_wait() -> Option<Carrier> {
    let (kt, mp) = current()?;
    let (blocks, sleeps) = mp.sticky.weigh(voluntary_switches());
    kt.instance().sticky.sleeps.fetch_add(sleeps, Ordering::Relaxed);
    mp.sticky.yields.set(0);
    if !blocks || is_recalled(kt.instance(), mp) { leave(kt, mp) } else { None }
}

/// Moves the caller to a VP if it is sticky and has done nothing but yield for long. Called when it
/// yields.
#[cold]
pub(crate) fn leave_to_yield() -> Option<Carrier> {
    let (kt, mp) = current()?;
    let yields = mp.sticky.yields.get() + 1;
    mp.sticky.yields.set(yields);
    if yields >= YIELDS {
        return leave_to_wait();
    }
    if is_recalled(kt.instance(), mp) { leave(kt, mp) } else { None }
}

/// Waits for a VP in a signal handler that has interrupted `mp`, which runs without one. Does
/// nothing where a handler may not wait. A sticky `mp` was recalled and stops being sticky.
/// Async-signal-safe.
pub(crate) fn await_another_turn(kt: &KernelThread, mp: &'static Mp) {
    if mp.sticky.is_bound.get() {
        return bind::stop_here(kt, mp);
    }
    if kt.events().may_stand_aside() {
        kt.in_handler(|| {
            if standing() == Standing::Sticky {
                end(kt.instance(), kt, mp);
            }
            handoff::await_turn(kt.instance(), mp);
        });
    }
}
