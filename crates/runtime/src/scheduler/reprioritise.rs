//! Changing the priority of a running or queued microprocess from any thread.

use std::sync::atomic::Ordering;

use kumihimo_events::sched::Event;
use kumihimo_policy::{Priority, Why};
use kumihimo_queue::Origin;

use crate::microprocess::protocol::state::Phase;
use crate::microprocess::record::Ref;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::{self, Instance};
use crate::scheduler::vp::Vp;
use crate::trace_hooks;

/// Sets a microprocess's own priority. The VP that runs or queues it gets *Changed* at once, and
/// requeues it by the new priority at its next scheduling step.
pub(crate) fn set(who: Ref, priority: Priority) {
    who.mp.priority.store(priority.get(), Ordering::Relaxed);
    changed(who);
}

/// Handles a possible change of a microprocess's effective priority: if it is queued, it is
/// requeued by the new priority.
pub(crate) fn changed(who: Ref) {
    let ask = |instance: &Instance| {
        trace_hooks::reprioritised(&instance.trace, who, || instance.placer.level_of(who.mp));
        // The microprocess is queued or running on its home VP, or parked. The owner of that VP
        // searches for it, and forwards the request if it does not find it.
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
        // The caller changes its own priority: a queued microprocess may outrank it now.
        let instance = vp.instance();
        trace_hooks::reprioritised(&instance.trace, who, || instance.placer.level_of(who.mp));
        vp.relevel(who.mp);
        return;
    }
    ask(vp.instance());
    vp.serve_priority_requests();
}

impl Vp {
    /// Requeues the microprocesses whose priorities were changed. Owner only.
    pub(crate) fn serve_priority_requests(&self) {
        let Some(list) = self.priority_requests.take() else { return };
        // Only this VP may take what its neighbour in the ring gave away, so only this VP can
        // search it.
        if let Some(taker) = self.queue().exchange() {
            self.instance().wake_idle(taker);
        }
        for (who, before) in list {
            if !who.is_alive() {
                continue;
            }
            if self.running().is_some_and(|mp| std::ptr::eq(mp, who.mp)) {
                self.relevel(who.mp);
            // SAFETY: records live for ever; `remove` checks whether this one is in the VP's
            // Protect Queue.
            } else if unsafe { self.queue().remove(who.item()) } {
                self.make_ready(who.mp, Why::Reprioritised, Origin::Wake);
            } else if who.mp.state.phase() == Phase::Live && before + 1 < 2 * self.instance().open()
            {
                // It may have been given to another VP. In the ring that is the next one, which may
                // pass it on at the same moment. If it has run meanwhile, its placement has used
                // the new priority.
                self.instance().reprioritise(self.index + 1, who, before + 1);
            }
        }
    }
}

impl Instance {
    /// Asks VP `at` to requeue the microprocess at its next scheduling step. Called after a
    /// priority change of a microprocess that may run, or be queued, there. `before` is the number
    /// of VPs asked before.
    pub(crate) fn reprioritise(&self, at: usize, who: Ref, before: usize) {
        let at = at % self.vps.len();
        // What a retired VP still has gets its place when another VP adopts it.
        let at = if self.vps[at].is_retired() { at % self.open() } else { at };
        let vp = &self.vps[at];
        if vp.priority_requests.add(who, before) {
            self.kernel.raise(at as u32, Event::Changed);
            vp.idle.wake();
        }
    }
}
