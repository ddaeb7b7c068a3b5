//! Priorities of running and queued microprocesses, changed from anywhere.

use std::sync::atomic::Ordering;

use kumihimo_policy::Priority;

use crate::microprocess::record::Ref;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::{self, Instance};
use crate::trace_hooks;

/// Sets a microprocess's own priority. The VP that runs or queues it is notified at once
/// (*Changed*), and places it anew at its next step.
pub(crate) fn set(who: Ref, priority: Priority) {
    who.mp.priority.store(priority.get(), Ordering::Relaxed);
    changed(who);
}

/// The effective priority of a microprocess may have changed: if it is queued it is placed anew.
pub(crate) fn changed(who: Ref) {
    let ask = |instance: &Instance| {
        trace_hooks::reprioritised(instance, who);
        // Queued or running on its home VP, or parked: the owner of that VP finds out, and passes
        // on what it does not find.
        instance.reprioritise(usize::from(who.mp.home.load(Ordering::Relaxed)), who, 0);
    };
    let Some(carrier) = Carrier::current() else {
        instance::visit(|instance| {
            if let Some(instance) = instance {
                ask(instance);
            }
        });
        return;
    };
    let vp = carrier.vp();
    if carrier.running().is_some_and(|mp| std::ptr::eq(mp, who.mp)) {
        // Oneself: what is queued may outrank the caller now.
        trace_hooks::reprioritised(vp.instance(), who);
        vp.relevel(who.mp);
        return;
    }
    ask(vp.instance());
    vp.priority_requests.serve(vp);
}
