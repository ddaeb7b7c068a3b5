//! Notifications from other address spaces, as far as they are the VPs': each looks for posts at
//! its steps and before it sleeps.

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

/// Whether the caller may leave it to the VP to ring, once for everything that was put before other
/// address spaces in this moment. The VP rings when it has nothing to run, which is at once where
/// nothing else is runnable, and else within some 50 us; after a tick of the timekeeper where a
/// microprocess computes for longer than expected. False: the caller rings itself.
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
    /// One that sleeps is woken, unless another one is up and looks; if all run, the one that runs
    /// the lowest is to look.
    pub(crate) fn wake_one_idle(&self) {
        if self.vps.iter().any(|vp| vp.idle.cell.is_looking()) {
            return;
        }
        if self.vps.iter().any(|vp| vp.idle.cell.is_sleeping()) {
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
    /// Where it is at home, while somebody wants that; else everywhere.
    pub(crate) fn home_core(&self) -> Option<u32> {
        let cores = cores();
        (affinity::is_kept() && cores.len() > 1).then(|| cores[self.index % cores.len()])
    }

    /// Its carrier, masked.
    pub(crate) fn keep_to_core(&self) {
        // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
        unsafe { KernelThread::here() }.keep_to(self.home_core());
    }

    /// Nothing is runnable here: rings for what is due, and says whether an answer is worth
    /// spinning for.
    pub(crate) fn expects_posts(&self) -> Option<u64> {
        self.keep_to_core();
        let handler = remote_wake::handler()?;
        let core = self.home_core().or_else(core)?;
        self.idle.cell.note_core(core);
        remote_wake::flush(Caller::Waits(core));
        handler.expects(core)
    }

    /// Has what others posted looked after, if there is something. One load else.
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
