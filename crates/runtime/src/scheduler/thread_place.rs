//! The kernel thread that a microprocess is on, as the shared page has it.

use std::sync::atomic::Ordering;

use kumihimo_backtrace::unwind::call_of;
use kumihimo_events::Slot;
use kumihimo_events::sched::ThreadState;

use crate::kernel_thread::gs_record::ANNOUNCED;
use crate::microprocess::record::Ref;
use crate::scheduler::instance::Instance;

/// The kernel thread that a microprocess is on.
pub(crate) struct ThreadPlace {
    pub(crate) tid: u32,
    /// The number of its slot.
    pub(crate) index: u32,
    /// The VP under it; none: bound without.
    pub(crate) vp: Option<u32>,
    /// Where in the kernel it is, if it is there.
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

/// Whether a kernel thread that carries no virtual processor has a microprocess all the same:
/// bound, or in user mode, its VP being lent or claimed at this moment. The slot of one that has
/// none to run keeps the last one's id.
pub(crate) fn has_microprocess(slot: &Slot) -> bool {
    let state = ThreadState::read(slot.state.load(Ordering::Relaxed));
    state.is_some_and(|(state, bound)| bound || state == ThreadState::User)
}

/// The VP that a kernel thread's microprocess runs on. None where it is away: a VP that nobody took
/// yet serves it no more than one that somebody did.
pub(crate) fn vp_under(instance: &Instance, slot: &Slot) -> Option<u32> {
    let is_away = ThreadState::read(slot.state.load(Ordering::Relaxed))
        == Some((ThreadState::Sleeping, true));
    (0..instance.vps.len() as u32).find(|vp| slot.carries(*vp)).filter(|_| !is_away)
}

/// Where a LIVE one is, as the shared page has it; none if it is queued.
pub(crate) fn on(instance: &Instance, who: Ref) -> Option<ThreadPlace> {
    shown(instance, |word| word == who.id())
}

/// As [`on`]; also where it is about to run, or to be found suspended.
pub(crate) fn on_or_announced(instance: &Instance, who: Ref) -> Option<ThreadPlace> {
    shown(instance, |word| word & !ANNOUNCED == who.id())
}

fn shown(instance: &Instance, is: impl Fn(u64) -> bool) -> Option<ThreadPlace> {
    instance.kernel.slots().zip(1..).find_map(|(slot, index): (&Slot, u32)| {
        let tid = slot.tid.load(Ordering::Acquire);
        if tid == 0 || !is(slot.microprocess.load(Ordering::Relaxed)) {
            return None;
        }
        // An idle one shows nobody. (To ask whether its VP sleeps would be to ask too late: it may
        // be another one's by then.)
        let vp = vp_under(instance, slot);
        (vp.is_some() || has_microprocess(slot)).then(|| ThreadPlace {
            tid,
            index,
            vp,
            call: call_of(tid).map(|(_, call)| call),
        })
    })
}
