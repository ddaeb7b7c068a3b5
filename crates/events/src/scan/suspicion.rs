//! Suspicions against a VP, and the time for which they have not changed.

use crate::handoff::slot::Slot;
use crate::linux::watch::{self, CpuClock, Tid};

/// The time that a thread ran and slept while a suspicion did not change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Age {
    cpu: u64,
    user: u64,
    pub(super) ran: u64,
    pub(super) slept: u64,
}

impl Age {
    pub(super) fn begin(tid: Tid) -> Age {
        let (cpu, user) =
            (CpuClock::of(tid).read().unwrap_or(0), watch::user_time(tid).unwrap_or(0));
        Age { cpu, user, ..Age::default() }
    }

    pub(super) fn more(&mut self, tid: Tid, elapsed: u64) {
        let cpu = CpuClock::of(tid).read().unwrap_or(self.cpu);
        let ran = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu));
        let user = watch::user_time(tid).unwrap_or(self.user);
        // Time in the kernel does not count: a system call may spin there for a lock whose holder
        // has no core.
        self.ran += ran.min(user.saturating_sub(self.user));
        self.user = self.user.max(user);
        // A thread that was about to run when it was checked counts as asleep once. A thread that
        // gets no core does not count.
        if ran < elapsed / 2 && watch::is_asleep(tid) {
            self.slept += elapsed;
        }
    }
}

/// One kind of suspicion against a VP.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    /// The suspicion lasts while this value does not change.
    pub(super) what: Option<[u64; 4]>,
    pub(super) age: Age,
    pub(super) reported: bool,
}

impl Suspicion {
    pub(super) fn begin(&mut self, what: [u64; 4], tid: Tid) {
        *self = Suspicion { what: Some(what), age: Age::begin(tid), reported: false };
    }

    pub(super) fn drop(&mut self) {
        *self = Suspicion::default();
    }
}

#[derive(Debug, Default)]
pub(super) struct Suspect {
    pub(super) masked: Suspicion,
    pub(super) blocked_call: Suspicion,
    pub(super) runs_on: Suspicion,
    pub(super) vp_missing: Suspicion,
}

/// The thread to be reported.
pub(super) struct Culprit<'a> {
    pub(super) vp: u32,
    pub(super) tid: Tid,
    /// The kernel thread's slot, if it has one.
    pub(super) slot: Option<(u32, &'a Slot)>,
    pub(super) age: Age,
}
