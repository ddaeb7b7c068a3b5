//! What others ask of a VP about microprocesses that may be in its queue. Rare, so a lock does.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use kumihimo_policy::Why;
use kumihimo_queue::Origin;

use crate::no_events::lock;
use crate::record::Ref;
use crate::vp::Vp;

#[derive(Default)]
pub(crate) struct Requests {
    pending: AtomicBool,
    list: Mutex<Vec<Ref>>,
}

impl Requests {
    /// The priority of `who` has changed, and it may be queued on this VP: place it anew.
    pub(crate) fn reprioritise(&self, who: Ref) {
        lock(&self.list).push(who);
        self.pending.store(true, Ordering::Release);
    }

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
        let list = std::mem::take(&mut *lock(&self.list));
        for who in list {
            // It may have run, moved on or ended meanwhile: then its next placement uses the new priority anyway.
            // SAFETY: records live for ever; `remove` finds out by itself whether it is in this VP's Protect Queue.
            if who.is_alive() && unsafe { vp.queue().remove(who.item()) } {
                vp.make_ready(who.mp, Why::Reprioritised, Origin::Wake);
            }
        }
    }
}
