//! Retirement: the number of VPs in use follows the cores that the process may use.
//!
//! A CPU quota and the CPU affinity may change while the process runs. The timekeeper reads both
//! once a second, unless the program or its user has set the number of VPs. VPs beyond the number
//! of cores *retire*, the last ones first, and are opened again when the number rises, up to the
//! number at the start.
//!
//! A retired VP runs no microprocesses:
//! - Others give it nothing (`kumihimo_queue::Set::set_retired`, [`Instance::inject`]).
//! - It hands what it has to the other VPs, and what comes nevertheless: from its timers, its
//!   descriptors, or a thread that decided before the VP retired. It then sleeps as an idle VP
//!   does, but takes no notice of the others' work. So the protocol against lost wake-ups is that
//!   of an idle VP.
//! - Its timers stay until they fire. A descriptor moves to another VP's epoll set when a
//!   microprocess waits for it again ([`crate::wait::readiness`]).
//!
//! In the ring of VPs, the last open VP has a successor that takes nothing. It hands its surplus to
//! the first VP instead, at its clock checks.

use std::sync::atomic::Ordering;

use kumihimo_events::sched::Event;
use kumihimo_policy::Why;
use kumihimo_queue::Origin;

use crate::kernel_thread::affinity;
use crate::scheduler::instance::Instance;
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
            // The runtime itself binds its kernel threads.
            cores.affinity = self.vps.len();
        }
        self.set_open(cores.count());
    }

    /// Sets the number of VPs in use. All VPs are in use while one is stuck, since the open ones
    /// may be the stuck ones.
    pub(crate) fn set_open(&self, wanted: usize) {
        let len = self.vps.len();
        let retired = self.vps.iter().filter(|vp| vp.is_retired()).count();
        let has_stuck = self.closed_vps.load(Ordering::Relaxed) > retired;
        let open = if has_stuck { len } else { wanted.clamp(1, len) };
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
        self.run_batch_if_due();
        self.hand_over_all();
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
