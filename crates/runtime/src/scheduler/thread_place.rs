//! The kernel thread on which a microprocess runs, as the shared page shows it.

use std::sync::atomic::Ordering;

use kumihimo_backtrace::unwind::call_of;
use kumihimo_events::Slot;
use kumihimo_events::sched::ThreadState;

use crate::kernel_thread::gs_record::ANNOUNCED;
use crate::microprocess::record::Ref;
use crate::scheduler::instance::Instance;

/// The kernel thread on which a microprocess runs.
pub(crate) struct ThreadPlace {
    pub(crate) tid: u32,
    /// Index of the thread's slot.
    pub(crate) index: u32,
    /// The VP that the thread carries. `None` if it is bound without one.
    pub(crate) vp: Option<u32>,
    /// The system call that the thread is in, if any.
    pub(crate) call: Option<i64>,
}

impl std::fmt::Display for ThreadPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.vp {
            Some(vp) => write!(f, "runs on kernel thread {} (VP {vp})", self.tid)?,
            None => write!(f, "bound to kernel thread {} without a VP", self.tid)?,
        }
        match self.call {
            Some(-1) => write!(f, ", which is stopped or faults"),
            Some(call) => write!(f, ", blocked in system call {call}"),
            None => Ok(()),
        }
    }
}

/// Whether a kernel thread that carries no VP nevertheless runs a microprocess. It is bound, or it
/// is in user mode while its VP is being lent or claimed. The slot alone does not decide this,
/// because the slot of a thread without a microprocess keeps the last one's ID.
pub(crate) fn has_microprocess(slot: &Slot) -> bool {
    let state = ThreadState::read(slot.state.load(Ordering::Relaxed));
    state.is_some_and(|(state, bound)| bound || state == ThreadState::User)
}

/// Returns the VP on which a kernel thread's microprocess runs. Returns `None` while the thread
/// blocks in the kernel, whether or not another thread has taken the VP yet.
pub(crate) fn vp_under(instance: &Instance, slot: &Slot) -> Option<u32> {
    let is_away = ThreadState::read(slot.state.load(Ordering::Relaxed))
        == Some((ThreadState::Sleeping, true));
    (0..instance.vps.len() as u32).find(|vp| slot.carries(*vp)).filter(|_| !is_away)
}

/// Returns the kernel thread on which a LIVE microprocess runs, as the shared page shows it, or
/// `None` if it is queued.
pub(crate) fn on(instance: &Instance, who: Ref) -> Option<ThreadPlace> {
    shown(instance, |word| word == who.id())
}

/// As [`on`], and also finds a microprocess that is about to run there or to be found suspended.
pub(crate) fn on_or_announced(instance: &Instance, who: Ref) -> Option<ThreadPlace> {
    shown(instance, |word| word & !ANNOUNCED == who.id())
}

/// Returns the ID of the kernel thread that shows the microprocess, or announces it.
pub(crate) fn tid_of(instance: &Instance, who: Ref) -> Option<u32> {
    instance.kernel.slots().find_map(|slot| {
        let tid = slot.tid.load(Ordering::Acquire);
        let word = slot.microprocess.load(Ordering::Relaxed);
        (tid != 0 && word & !ANNOUNCED == who.id()).then_some(tid)
    })
}

fn shown(instance: &Instance, is: impl Fn(u64) -> bool) -> Option<ThreadPlace> {
    instance.kernel.slots().zip(1..).find_map(|(slot, index): (&Slot, u32)| {
        let tid = slot.tid.load(Ordering::Acquire);
        if tid == 0 || !is(slot.microprocess.load(Ordering::Relaxed)) {
            return None;
        }
        // The slot of an idle thread shows no microprocess. Checking here whether its VP sleeps
        // would come too late: another thread may carry that VP by then.
        let vp = vp_under(instance, slot);
        (vp.is_some() || has_microprocess(slot)).then(|| ThreadPlace {
            tid,
            index,
            vp,
            call: call_of(tid).map(|(_, call)| call),
        })
    })
}
