//! Microprocesses with their states and kernel threads, as the control socket describes them.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use kumihimo_events::Slot;
use kumihimo_machine::handler::{Microprocess, State};
use kumihimo_resource::id::Id;

use crate::microprocess::protocol::state::Phase;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::wait_reason::Wait;
use crate::observe::holders::{Held, Holders};
use crate::scheduler::instance::Instance;
use crate::scheduler::thread_place;

/// The microprocesses that are on a kernel thread, by ID.
pub(super) struct Threads(HashMap<u64, OnThread>);

#[derive(Clone, Copy)]
struct OnThread {
    tid: i32,
    vp: Option<u16>,
}

impl Threads {
    pub(super) fn of(instance: &Instance) -> Threads {
        let on = |slot: &Slot| {
            let tid = slot.tid.load(Ordering::Acquire);
            let vp = thread_place::vp_under(instance, slot);
            let has = vp.is_some() || thread_place::has_microprocess(slot);
            let id = slot.microprocess.load(Ordering::Relaxed);
            (tid != 0 && has)
                .then_some((id, OnThread { tid: tid as i32, vp: vp.map(|vp| vp as u16) }))
        };
        Threads(instance.kernel.slots().filter_map(on).collect())
    }

    /// Returns the state of a microprocess, or `None` if it has ended.
    pub(super) fn state(&self, who: Ref, phase: Phase) -> Option<State> {
        let suspended = who.mp.state.is_suspended();
        Some(match phase {
            Phase::Suspended => State::Suspended,
            Phase::Parked if suspended => State::Suspended,
            Phase::Parked => State::Waiting,
            Phase::Live => match self.0.get(&who.id()) {
                Some(OnThread { vp: Some(_), .. }) => State::Running,
                Some(_) => State::Blocked,
                None if suspended => State::Suspended,
                None => State::Runnable,
            },
            Phase::Free | Phase::Done | Phase::Abandoned => return None,
        })
    }

    /// Describes a microprocess, with its lock's holder if `holders` has it. `None` if it has ended
    /// or another life uses the record.
    pub(super) fn see(&self, mp: &'static Mp, holders: &Holders) -> Option<Microprocess> {
        let who = mp.reference();
        let phase = mp.state.phase();
        let on = self.0.get(&who.id()).copied();
        let suspended = mp.state.is_suspended();
        let state = self.state(who, phase)?;
        let wait = mp.waits_for().filter(|_| phase == Phase::Parked);
        let name = (mp.label_len.load(Ordering::Acquire) != 0).then(|| mp.name_text());
        let seen = Microprocess {
            id: Id::from_bits(who.id())?,
            name,
            state,
            stopping: suspended && state != State::Suspended,
            waits_for: wait.as_ref().map(Wait::to_string),
            holder: wait.and_then(|wait| holders.get(wait)).map(Held::describe),
            priority: mp.priority.load(Ordering::Relaxed),
            inherited: mp.inherited(),
            vp: on.and_then(|on| on.vp).unwrap_or_else(|| mp.home.load(Ordering::Relaxed)),
            kernel_thread: on
                .filter(|_| matches!(state, State::Running | State::Blocked))
                .map(|on| on.tid),
            sticky: mp.sticky.reason().map(|why| why.name().to_owned()),
        };
        // Otherwise the record belongs to another life by now.
        who.is_current().then_some(seen)
    }
}
