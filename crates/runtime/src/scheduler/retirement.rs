//! Retirement: the number of VPs in use follows the cores that the process may use.
//!
//! A CPU quota and the CPU affinity may change while the process runs. The timekeeper reads both
//! once a second, unless the program or its user has set the number of VPs. VPs beyond the number
//! of cores *retire*, the last ones first, and are opened again when the number rises. There is
//! room for one VP for each online core, so that the number can exceed that at the start.
//!
//! A retired VP runs no microprocesses:
//! - Others give it nothing (`kumihimo_queue::Set::set_retired`, [`Instance::inject`]).
//! - It hands what it has to the other VPs, and what comes nevertheless from a thread that decided
//!   before the VP retired. It takes no notice of the others' work.
//! - It then parts from its kernel thread ([`crate::scheduler::parking`]).
//!
//! In the ring of VPs, the last open VP has a successor that takes nothing. It hands its surplus to
//! the first VP instead, at its clock checks.

use std::sync::atomic::Ordering;

use kumihimo_events::sched::Event;
use kumihimo_policy::Why;
use kumihimo_queue::Origin;

use crate::kernel_thread::affinity;
use crate::process::cores;
use crate::scheduler::instance::{self, Instance};
use crate::scheduler::vp::Vp;

impl Instance {
    /// Retires or opens VPs if the number of cores has changed. Called by the timekeeper; reads
    /// small files once a second.
    pub(crate) fn follow_cores(&self) {
        if self.stopped() {
            return;
        }
        let Some(mut cores) = self.core_watch.look_if_due(self.now()) else { return };
        if affinity::was_ever_kept() {
            // The runtime itself binds its kernel threads, to the cores that it found at its start.
            cores.affinity = cores::cores().len();
        }
        self.wanted_vps.store(cores.count(), Ordering::Relaxed);
        self.adjust_open();
    }

    /// Sets the number of VPs in use: one for each core that the process may use, and one in place
    /// of each stuck VP.
    ///
    /// Does not block: if another thread adjusts the number now, that thread does so once more.
    pub(crate) fn adjust_open(&self) {
        let mut requests = self.open_requests.fetch_add(1, Ordering::SeqCst) + 1;
        if requests != 1 {
            return;
        }
        loop {
            self.adjust_once();
            let done = self.open_requests.compare_exchange(
                requests,
                0,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            match done {
                Ok(_) => return,
                Err(now) => requests = now,
            }
        }
    }

    fn adjust_once(&self) {
        let len = self.vps.len();
        let retired = self.vps.iter().filter(|vp| vp.is_retired()).count();
        let stuck = self.closed_vps.load(Ordering::Relaxed).saturating_sub(retired);
        let open = (self.wanted_vps.load(Ordering::Relaxed) + stuck).clamp(1, len);
        if self.open_vps.swap(open, Ordering::Relaxed) == open && len - open == retired {
            return;
        }
        for vp in &self.vps {
            let is = vp.index >= open;
            if vp.retired.swap(is, Ordering::SeqCst) == is {
                continue;
            }
            self.queues.set_retired(vp.index, is);
            if is {
                self.closed_vps.fetch_add(1, Ordering::Relaxed);
                // The running microprocess gives way, so that another VP runs it.
                self.kernel.raise(vp.index as u32, Event::Preempted);
            } else {
                self.closed_vps.fetch_sub(1, Ordering::Relaxed);
            }
            vp.idle.wake();
        }
        if self.sets_concurrency.load(Ordering::Relaxed) {
            self.kernel.set_concurrency(open);
        }
    }

    /// Sets the number of spare kernel threads, which does not follow the number of VPs in use from
    /// then on.
    pub(crate) fn set_concurrency(&self, n: usize) {
        self.sets_concurrency.store(false, Ordering::Relaxed);
        self.kernel.set_concurrency(n);
    }

    /// Returns the number of VPs in use.
    pub(crate) fn open(&self) -> usize {
        self.open_vps.load(Ordering::Relaxed)
    }

    /// Whether some VP is retired.
    pub(crate) fn has_retired(&self) -> bool {
        self.open() != self.vps.len()
    }
}

/// Sets the number of VPs in use, as a change of the cores that the process may use does. Returns
/// false if no runtime runs. A runtime whose number of VPs is not fixed looks at the cores again
/// within a second. For tests and experiments.
pub fn set_open_vps(n: usize) -> bool {
    instance::visit(|instance| {
        let Some(instance) = instance else { return false };
        instance.wanted_vps.store(n, Ordering::Relaxed);
        instance.adjust_open();
        true
    })
}

impl Vp {
    /// Whether the VP runs no microprocesses for the time being. Any thread may call this.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Whether the VP sleeps and may be woken for work of another VP. Any thread may call this.
    pub(crate) fn sleeps_for_work(&self) -> bool {
        self.idle.cell.is_sleeping() && !self.is_retired()
    }

    /// Hands all runnable microprocesses to other VPs, because this one is retired. On the kernel
    /// thread's own stack.
    #[cold]
    pub(crate) fn retire_step(&self) {
        if let Some(next) = self.promised.take() {
            self.make_ready(next, Why::Outranked, Origin::Yield);
        }
        self.look_around();
        self.hand_over_all();
        // A batch waits for what else is runnable here, and that is gone. Nothing would wake the
        // VP for the batch once it sleeps.
        while self.syscall_batch.waiting.get() != 0 {
            self.run_batch(None);
            self.hand_over_all();
        }
    }

    fn hand_over_all(&self) {
        self.hand_over(usize::MAX, || self.instance().next_vp());
    }

    /// The part of a clock check that applies while some VP is retired. Owner only.
    #[cold]
    pub(in crate::scheduler) fn look_beside_retired(&self) {
        if self.is_retired() {
            return self.hand_over_all();
        }
        let instance = self.instance();
        let next = (self.index + 1) % instance.vps.len();
        // Where levels differ, `rebalance` hands over.
        if !self.has_common_level() || !instance.queues.is_closed(next) {
            return;
        }
        let to = instance.open_vp_for(next);
        if to != self.index {
            let more = self.queue().len().saturating_sub(instance.queues.shown(to).0);
            self.hand_over(more / 2, || to);
        }
    }

    /// Hands at most `most` queued microprocesses to the VPs that `to` selects.
    fn hand_over(&self, most: usize, to: impl Fn() -> usize) {
        let instance = self.instance();
        for _ in 0..most {
            let Some(item) = self.queue().hand(0) else { return };
            // SAFETY: queued items are records, and `hand` gave this one to the caller exclusively.
            let mp = unsafe { &*item.as_ptr() };
            mp.handed.set(true);
            if self.has_common_level() {
                instance.put(to(), mp);
            } else {
                instance.send(to(), mp, mp.level.get());
            }
        }
    }
}
