//! Notifications from other address spaces: each VP checks for posts at its scheduling steps and
//! before it sleeps.

use std::sync::atomic::Ordering;

use kumihimo_arbiter::row::Caller;
use kumihimo_events::sched::Event;
use kumihimo_queue::Taker;

use crate::idle::remote_wake;
use crate::kernel_thread::affinity;
use crate::kernel_thread::gs_record::KernelThread;
use crate::process::cores::{core, cores};
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::Instance;
use crate::scheduler::vp::Vp;

/// Leaves the flush of pending notifications to other address spaces to the caller's VP, if that is
/// soon enough. Returns false if the caller must flush.
///
/// The VP flushes once for all notifications that were posted meanwhile. It does so when it has
/// nothing to run, and at latest after some 50 us. Where a microprocess computes for longer than
/// expected, the timekeeper flushes at its next tick.
#[must_use]
pub fn defer_flush() -> bool {
    let Some(carrier) = Carrier::current() else { return false };
    let vp = carrier.vp();
    if carrier.is_running() && (vp.queue().is_empty() || vp.switches_fast()) {
        remote_wake::note_unflushed(vp.level.get());
        return true;
    }
    false
}

impl Instance {
    /// Wakes a sleeping VP, unless another VP polls already. If all VPs run, the one with the
    /// lowest priority gets *Preempted*, so that it checks for posts.
    pub(crate) fn wake_one_idle(&self) {
        if self.vps.iter().any(|vp| vp.idle.cell.is_polling()) {
            return;
        }
        if self.vps.iter().any(Vp::sleeps_for_work) {
            return self.wake_idle(Taker::Any);
        }
        let runs = |vp: &Vp| {
            self.kernel
                .carrier(vp.index as u32)
                .map_or(i32::MAX, |slot| slot.priority.load(Ordering::Relaxed))
        };
        if let Some(lowest) = self.vps.iter().min_by_key(|vp| runs(vp)) {
            self.kernel.raise(lowest.index as u32, Event::Preempted);
        }
    }
}

impl Vp {
    /// Returns the home core of the VP while VPs are bound to cores, or `None`.
    pub(crate) fn home_core(&self) -> Option<u32> {
        let cores = cores();
        (affinity::is_kept() && cores.len() > 1).then(|| cores[self.index % cores.len()])
    }

    /// Binds the carrier, masked, to the home core, or releases it.
    pub(crate) fn keep_to_core(&self) {
        // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
        unsafe { KernelThread::here() }.keep_to(self.home_core());
    }

    /// Flushes due notifications, because nothing is runnable here. Returns for how many
    /// nanoseconds spinning for a reply is worth while, if it is.
    pub(crate) fn expects_posts(&self) -> Option<u64> {
        self.keep_to_core();
        let handler = remote_wake::handler()?;
        let core = self.home_core().or_else(core)?;
        self.idle.cell.set_core(core);
        remote_wake::flush(Caller::Waits(core));
        handler.expects(core)
    }

    /// Has the handler process posts from other address spaces, if there are any. Otherwise costs
    /// one load.
    #[inline(always)]
    pub(crate) fn take_posts(&self) {
        if self.row.head.has_posts() {
            self.take_in();
        }
    }

    #[cold]
    fn take_in(&self) {
        let posts = self.row.head.take_posts();
        if let Some(handler) = remote_wake::handler().filter(|_| posts != 0) {
            handler.take_in(posts);
        }
    }
}
