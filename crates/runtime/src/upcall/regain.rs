//! Return to a VP for a caller that enters the runtime.

use crate::kernel_thread::gs_record::{KernelThread, Standing, standing};
use crate::microprocess::sticky_state::Reason;
use crate::scheduler::carrier::Carrier;
use crate::upcall::{bound, change_check, sticky, sticky_return};

impl Carrier {
    /// As [`current`](Carrier::current). A caller whose VP was taken over first waits for its turn
    /// on a VP, unless it becomes sticky. May switch.
    #[inline]
    pub(crate) fn regain() -> Option<Carrier> {
        match Carrier::current() {
            Some(carrier) => change_check::bind_if_changed(carrier),
            None => regain_without_vp(sticky_return::return_if_recalled),
        }
    }

    /// As [`regain`](Carrier::regain), for a caller that is about to wait.
    #[inline]
    pub(crate) fn regain_to_wait() -> Option<Carrier> {
        match Carrier::current() {
            Some(carrier) => change_check::bind_if_changed(carrier),
            None => regain_without_vp(sticky_return::leave_to_wait),
        }
    }

    /// As [`regain`](Carrier::regain), but puts even a sticky caller on a VP. Returns `None` on a
    /// foreign kernel thread, inside `blocking` and in a bound microprocess. May switch.
    pub(crate) fn obtain() -> Option<Carrier> {
        let carrier = Carrier::current().or_else(|| match standing() {
            Standing::OnVp if cfg!(debug_assertions) => return_unless_changed(),
            Standing::OnVp => Some(bound::return_to_vp()),
            Standing::Sticky => sticky::current().and_then(|(kt, mp)| sticky_return::leave(kt, mp)),
            Standing::Foreign | Standing::Bound => None,
        });
        change_check::bind_if_changed(carrier?)
    }
}

/// The rest of [`regain`](Carrier::regain), away from the path of each yield and each wait.
/// `sticky` decides for a sticky caller.
#[cold]
fn regain_without_vp(sticky: fn() -> Option<Carrier>) -> Option<Carrier> {
    let carrier = match standing() {
        Standing::OnVp => return_or_stick(),
        Standing::Sticky => sticky(),
        Standing::Foreign | Standing::Bound => None,
    };
    change_check::bind_if_changed(carrier?)
}

/// Gives way if a microprocess of a higher level has become runnable on the caller's VP, or if the
/// caller's quantum is over.
///
/// Call it after waking others, at a place where no lock is held. Does nothing on foreign threads.
#[inline]
pub fn switch_point() {
    if let Some(carrier) = Carrier::regain()
        && carrier.is_running()
    {
        carrier.switch_point();
    }
}

/// Returns to a VP after the caller's VP was taken over during an unannounced block in the kernel.
/// Returns `None` if the caller becomes sticky.
#[cold]
fn return_or_stick() -> Option<Carrier> {
    // SAFETY: the caller's standing is `OnVp`: GS is set. Without a VP no call that switches is
    // injected, so the kernel thread stays the same.
    let kt = unsafe { KernelThread::begin_guard() };
    // Masked before the checks: see `return_to_vp`.
    kt.mask();
    // SAFETY: null or a record, which lives for ever.
    let mp = unsafe { kt.current.get().as_ref() }
        .filter(|_| kt.vp.get().is_null() && !kt.is_in_handler());
    let changed = mp.and_then(|mp| Some((mp, change_check::bind_without_vp(kt, mp)?)));
    let reason = mp.and_then(|mp| Some((mp, sticky::reason(kt.instance(), mp)?)));
    if let Some((mp, reason)) = reason {
        sticky::begin(kt.instance(), kt, mp, reason);
    }
    kt.unmask();
    if let Some((mp, what)) = changed {
        change_check::say_bound(mp, what);
    }
    reason.is_none().then(bound::return_to_vp)
}

/// Returns to a VP, unless the caller has changed its kernel thread and keeps it. Debug builds
/// only.
#[cold]
fn return_unless_changed() -> Option<Carrier> {
    // SAFETY: the caller's standing is `OnVp`: GS is set. Without a VP the kernel thread stays the
    // same.
    let kt = unsafe { KernelThread::begin_guard() };
    kt.mask();
    // SAFETY: null or a record, which lives for ever.
    let mp = unsafe { kt.current.get().as_ref() }
        .filter(|_| kt.vp.get().is_null() && !kt.is_in_handler());
    let changed = mp.and_then(|mp| Some((mp, change_check::bind_without_vp(kt, mp)?)));
    if let Some((mp, _)) = changed {
        sticky::begin(kt.instance(), kt, mp, Reason::Bound);
    }
    kt.unmask();
    match changed {
        Some((mp, what)) => {
            change_check::say_bound(mp, what);
            None
        }
        None => Some(bound::return_to_vp()),
    }
}
