//! The ways back to a virtual processor for a caller that enters the runtime.

use crate::kernel_thread::gs_record::{KernelThread, Standing, standing};
use crate::scheduler::carrier::Carrier;
use crate::upcall::{bound, sticky};

impl Carrier {
    /// As [`current`](Carrier::current); a caller whose VP was taken over waits for its turn on one
    /// first, unless it becomes sticky by that. May switch.
    #[inline]
    pub(crate) fn regain() -> Option<Carrier> {
        Carrier::current().or_else(|| match standing() {
            Standing::OnVp => return_or_stick(),
            Standing::Sticky => sticky::return_if_recalled(),
            Standing::Foreign | Standing::Bound => None,
        })
    }

    /// As [`regain`](Carrier::regain), by a caller that is about to wait.
    #[inline]
    pub(crate) fn regain_to_wait() -> Option<Carrier> {
        Carrier::current().or_else(|| match standing() {
            Standing::OnVp => return_or_stick(),
            Standing::Sticky => sticky::leave_to_wait(),
            Standing::Foreign | Standing::Bound => None,
        })
    }

    /// The caller's, on a VP in any case; none on a foreign kernel thread or inside `blocking`. May
    /// switch.
    pub(crate) fn obtain() -> Option<Carrier> {
        Carrier::current().or_else(|| match standing() {
            Standing::OnVp => Some(bound::return_to_vp()),
            Standing::Sticky => sticky::current().map(|(kt, mp)| sticky::leave(kt, mp)),
            Standing::Foreign | Standing::Bound => None,
        })
    }
}

/// A switch point: gives way if something of a higher level has become runnable here, or the
/// policy's quantum is over.
///
/// Call it where no lock is held, after having woken others. Nothing on foreign threads.
#[inline]
pub fn switch_point() {
    if let Some(carrier) = Carrier::regain()
        && carrier.is_running()
    {
        carrier.switch_point();
    }
}

/// The caller's VP was taken over while it was away in the kernel without saying so. None: it is
/// sticky from here.
#[cold]
fn return_or_stick() -> Option<Carrier> {
    // SAFETY: the caller's standing is `OnVp`: GS is set. It has no VP, so nothing is injected that
    // would switch: it is the same kernel thread.
    let kt = unsafe { KernelThread::begin_guard() };
    // See `return_to_vp`.
    kt.mask();
    // SAFETY: null or a record, which lives for ever.
    let mp = unsafe { kt.current.get().as_ref() }
        .filter(|_| kt.vp.get().is_null() && !kt.is_in_handler());
    let reason = mp.and_then(|mp| Some((mp, sticky::reason(kt.instance(), mp)?)));
    if let Some((mp, reason)) = reason {
        sticky::begin(kt.instance(), kt, mp, reason);
    }
    kt.unmask();
    reason.is_none().then(bound::return_to_vp)
}
