//! What others ask of a VP about microprocesses that may be in its queue. Rare, so a lock does.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use kumihimo_events::sched::Event;
use kumihimo_policy::Why;
use kumihimo_queue::Origin;

use crate::kernel_thread::no_events::lock;
use crate::microprocess::record::Ref;
use crate::microprocess::state::Phase;
use crate::scheduler::instance::Instance;
use crate::scheduler::vp::Vp;

/// So many entries of a list that nobody serves are looked through for doubles.
const MANY: usize = 256;

#[derive(Default)]
pub(crate) struct PriorityRequests {
    pending: AtomicBool,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// Whose priority has changed, and how many VPs were asked before.
    of: Vec<(Ref, usize)>,
    /// Its length after the last look for doubles.
    tidy: usize,
}

impl List {
    /// A VP that takes no step while others are changed thousands of times: the list is bounded by
    /// how many they are.
    fn add(&mut self, who: Ref, before: usize) {
        self.of.push((who, before));
        if self.of.len() >= MANY.max(2 * self.tidy) {
            let key = |(who, before): &(Ref, usize)| {
                (std::ptr::from_ref(who.mp).addr(), who.generation, *before)
            };
            // The one that was asked of the fewest stays.
            self.of.sort_unstable_by_key(key);
            self.of.dedup_by(|(after, _), (first, _)| after == first);
            self.tidy = self.of.len();
        }
    }
}

impl PriorityRequests {
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    /// By the owner of the VP.
    pub(crate) fn serve(&self, vp: &Vp) {
        if !self.pending() {
            return;
        }
        self.pending.store(false, Ordering::Relaxed);
        let list = std::mem::take(&mut *lock(&self.list)).of;
        // What the neighbour gave away is this VP's to take, and nobody else's to look through.
        if let Some(taker) = vp.queue().exchange() {
            vp.instance().wake_idle(taker);
        }
        for (who, before) in list {
            if !who.is_alive() {
                continue;
            }
            if vp.running().is_some_and(|mp| std::ptr::eq(mp, who.mp)) {
                vp.relevel(who.mp);
            // SAFETY: records live for ever; `remove` finds out by itself whether it is in this
            // VP's Protect Queue.
            } else if unsafe { vp.queue().remove(who.item()) } {
                vp.make_ready(who.mp, Why::Reprioritised, Origin::Wake);
            } else if who.mp.state.phase() == Phase::Live
                && before + 1 < 2 * vp.instance().vps.len()
            {
                // It may have been given to another VP: in the ring that is the next one, which may
                // give it on at that moment. If it has run meanwhile its placement has used the new
                // priority.
                vp.instance().reprioritise(vp.index + 1, who, before + 1);
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
        lock(&vp.priority_requests.list).add(who, before);
        // Release: the owner that sees it sees the new priority.
        if !vp.priority_requests.pending.swap(true, Ordering::Release) {
            self.kernel.raise(at as u32, Event::Changed);
            vp.idle.wake();
        }
    }
}
