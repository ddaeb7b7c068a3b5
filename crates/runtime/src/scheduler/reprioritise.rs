//! Priorities of running and queued microprocesses, changed from anywhere.

use std::sync::atomic::Ordering;

use kumihimo_events::sched::Event;
use kumihimo_policy::{Priority, Why};
use kumihimo_queue::Origin;

use crate::microprocess::record::Ref;
use crate::microprocess::state::Phase;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::{self, Instance};
use crate::scheduler::vp::Vp;
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
        trace_hooks::reprioritised(&instance.trace, who, || instance.placer.level_of(who.mp));
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
        let instance = vp.instance();
        trace_hooks::reprioritised(&instance.trace, who, || instance.placer.level_of(who.mp));
        vp.relevel(who.mp);
        return;
    }
    ask(vp.instance());
    vp.serve_priority_requests();
}

impl Vp {
    /// Places anew what was asked for. Owner only.
    pub(crate) fn serve_priority_requests(&self) {
        let Some(list) = self.priority_requests.take() else { return };
        // What the neighbour gave away is this VP's to take, and nobody else's to look through.
        if let Some(taker) = self.queue().exchange() {
            self.instance().wake_idle(taker);
        }
        for (who, before) in list {
            if !who.is_alive() {
                continue;
            }
            if self.running().is_some_and(|mp| std::ptr::eq(mp, who.mp)) {
                self.relevel(who.mp);
            // SAFETY: records live for ever; `remove` finds out by itself whether it is in this
            // VP's Protect Queue.
            } else if unsafe { self.queue().remove(who.item()) } {
                self.make_ready(who.mp, Why::Reprioritised, Origin::Wake);
            } else if who.mp.state.phase() == Phase::Live
                && before + 1 < 2 * self.instance().vps.len()
            {
                // It may have been given to another VP: in the ring that is the next one, which may
                // give it on at that moment. If it has run meanwhile its placement has used the new
                // priority.
                self.instance().reprioritise(self.index + 1, who, before + 1);
            }
        }
    }
}

impl Instance {
    /// The priority of a microprocess has changed, and it may run, or be queued, on VP `at`, which
    /// places it anew at its next step.
    pub(crate) fn reprioritise(&self, at: usize, who: Ref, before: usize) {
        let at = at % self.vps.len();
        let vp = &self.vps[at];
        if vp.priority_requests.add(who, before) {
            self.kernel.raise(at as u32, Event::Changed);
            vp.idle.wake();
        }
    }
}
