//! The state of a microprocess: one atomic word.
//!
//! ```text
//!                 1 begin                    2 commit_park
//!      +------+  ---------->  +--------+  ------------------->  +----------+
//!      | FREE |               |  LIVE  |                        |  PARKED  |
//!      +------+  <--          +--------+  <-------------------  +----------+
//!                   \           |  ^  |         3 wake                |
//!          6 release \  5 finish|  |  | 3 wake: + PERMIT              | 7 abandon
//!                     \         v  +--+ 4 take_permit: - PERMIT       v
//!                      +--- +--------+                          +-----------+
//!                           |  DONE  |                          | ABANDONED |
//!                           +--------+                          +-----------+
//! ```
//! 8 cancel: LIVE, PARKED or SUSPENDED, + CANCELLED, until the end of that life. 9 retire: DONE ->
//! ABANDONED, when the serials are used up.
//!
//! No carrier switches to a suspended microprocess. A parked one may stay parked:
//! ```text
//!   LIVE, PARKED  -- 10 request_suspend:  + SUSPEND_REQUESTED (SR below)
//!   LIVE   + SR   -- 11 commit_suspend -> SUSPENDED   by the carrier that would switch to it, or
//!                                                     has just left it
//!   PARKED + SR   -- 3 wake ------------> SUSPENDED   it would be runnable now; it is not queued
//!   SUSPENDED     -- 12 resume ---------> LIVE        - SR; the resuming thread queues it
//!   LIVE, PARKED  -- 12 resume:           - SR
//!   SUSPENDED     -- 7 abandon ---------> ABANDONED
//! ```
//!
//! LIVE means running or queued; only the carrier distinguishes the two. The rest of the word is
//! the serial of that life ([`kumihimo_resource::id::Serial`]), here called generation. *release*
//! advances it, so every reference to the former life is stale from then on.
//!
//! Transitions are made by: 1, 5, 6, 9, 11 the carrier that holds the microprocess; 2 the carrier
//! that has just left its stack; 4 the microprocess; 3, 8, 10 and 12 any thread; 7 the end of the
//! runtime. The thread that moves PARKED or SUSPENDED to LIVE must queue the microprocess.

use crate::loom::atomic::{AtomicU64, Ordering};

const FREE: u64 = 0;
const LIVE: u64 = 1;
const PARKED: u64 = 2;
const DONE: u64 = 3;
const ABANDONED: u64 = 4;
const SUSPENDED: u64 = 5;
const PHASE: u64 = 7;
const PERMIT: u64 = 8;
const CANCELLED: u64 = 16;
const SUSPEND_REQUESTED: u64 = 32;
const FLAGS: u64 = PHASE | PERMIT | CANCELLED | SUSPEND_REQUESTED;
const GENERATION_SHIFT: u32 = 8;

#[derive(Debug)]
pub(crate) struct State(AtomicU64);

/// Result of a wake-up for the waker.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// The microprocess was parked, and the caller must queue it.
    Queue,
    /// The caller has nothing to queue. The microprocess runs or is queued, and got a permit for
    /// its next park; or it is suspended.
    Permit,
    /// The microprocess has ended, or the reference is stale.
    Gone,
}

/// Result of a park.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Park {
    /// The microprocess is parked; a waker may already hold it.
    Parked,
    /// The permit was consumed: the caller still holds the microprocess and must queue it.
    Permit,
}

/// Result of a request to suspend.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspend {
    /// The microprocess runs or is queued, and is suspended before it runs again. The caller must
    /// notify its carrier.
    Asked,
    /// The microprocess waits, and will not run when the wait is over.
    Waits,
    /// The microprocess was suspended before.
    Already,
    /// The microprocess has ended, or the reference is stale.
    Gone,
}

/// Result of a resumption.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// The microprocess was suspended, and the caller must queue it.
    Queue,
    /// The request was withdrawn: the microprocess was not stopped yet, or waits.
    Cleared,
    /// The microprocess was not suspended.
    Already,
    /// The microprocess has ended, or the reference is stale.
    Gone,
}

/// Phase of the state word, for other threads and for reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Free,
    Live,
    Parked,
    Done,
    Abandoned,
    Suspended,
}

impl State {
    /// Creates a state in phase FREE, with a generation that no reference has.
    pub(crate) fn new(generation: u64) -> State {
        State(AtomicU64::new(generation << GENERATION_SHIFT))
    }

    pub(crate) fn generation(&self) -> u64 {
        self.0.load(Ordering::Relaxed) >> GENERATION_SHIFT
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.0.load(Ordering::Acquire) & PHASE {
            FREE => Phase::Free,
            LIVE => Phase::Live,
            PARKED => Phase::Parked,
            DONE => Phase::Done,
            SUSPENDED => Phase::Suspended,
            _ => Phase::Abandoned,
        }
    }

    /// 1. FREE -> LIVE. A plain store: no reference of this generation exists yet.
    #[inline]
    pub(crate) fn begin(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & PHASE, FREE);
        self.0.store((word & !FLAGS) | LIVE, Ordering::Release);
    }

    /// 2. LIVE -> PARKED, or consumes the permit. Release: the waker that queues the microprocess
    ///    publishes its saved context.
    #[inline]
    pub(crate) fn commit_park(&self) -> Park {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & PERMIT == 0 {
            let parked = (word & !PHASE) | PARKED;
            match self.0.compare_exchange_weak(word, parked, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Park::Parked,
                // A permit; or a cancel request, which a permit follows soon.
                Err(now) => word = now,
            }
        }
        self.0.fetch_and(!PERMIT, Ordering::AcqRel);
        Park::Permit
    }

    /// 3. PARKED -> LIVE (or SUSPENDED, if that was requested), or leaves a permit. AcqRel:
    ///    everything before in the waker happens before the woken microprocess continues.
    #[inline]
    pub(crate) fn wake(&self, generation: u64) -> Wake {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word >> GENERATION_SHIFT != generation {
                return Wake::Gone;
            }
            let (next, result) = match word & PHASE {
                PARKED if word & SUSPEND_REQUESTED == 0 => ((word & !PHASE) | LIVE, Wake::Queue),
                PARKED => ((word & !PHASE) | SUSPENDED, Wake::Permit),
                // Written even if the permit is set already: the write publishes the waker's
                // stores.
                LIVE | SUSPENDED => (word | PERMIT, Wake::Permit),
                _ => return Wake::Gone,
            };
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return result,
                Err(now) => word = now,
            }
        }
    }

    /// 4. Consumes the permit if there is one.
    #[inline]
    pub(crate) fn take_permit(&self) -> bool {
        self.0.load(Ordering::Relaxed) & PERMIT != 0
            && self.0.fetch_and(!PERMIT, Ordering::AcqRel) & PERMIT != 0
    }

    /// 5. LIVE -> DONE. A plain store: a permit that a waker leaves meanwhile is not read any more.
    #[inline]
    pub(crate) fn finish(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & PHASE, LIVE);
        let done = (word & !FLAGS) | DONE;
        // The next load here reads this store or a later one, even if a waker writes concurrently.
        crate::loom::store_release(&self.0, done);
    }

    /// Reverts 5, because the microprocess must run again. Only by the carrier that has just called
    pub(crate) fn undo_finish(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & PHASE, DONE);
        self.0.store((word & !FLAGS) | LIVE, Ordering::Release);
    }

    /// 6. DONE -> FREE, next generation. A plain store: wakers do not write a DONE word.
    #[inline]
    pub(crate) fn release(&self, next: u64) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed) & PHASE, DONE);
        self.0.store(next << GENERATION_SHIFT, Ordering::Release);
    }

    /// 9. DONE -> ABANDONED: the record is not reused.
    pub(crate) fn retire(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & PHASE, DONE);
        self.0.store((word & !FLAGS) | ABANDONED, Ordering::Release);
    }

    /// 8. LIVE, PARKED or SUSPENDED: sets CANCELLED. Returns false if that life has ended. The
    ///    caller wakes the microprocess afterwards.
    pub(crate) fn cancel(&self, generation: u64) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word >> GENERATION_SHIFT != generation
                || !matches!(word & PHASE, LIVE | PARKED | SUSPENDED)
            {
                return false;
            }
            match self.0.compare_exchange_weak(
                word,
                word | CANCELLED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Whether this life was cancelled.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CANCELLED != 0
    }

    /// 10. LIVE or PARKED: requests suspension. AcqRel: the thread that suspends or resumes the
    ///     microprocess observes everything before this call.
    pub(crate) fn request_suspend(&self, generation: u64) -> Suspend {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let done = match word & PHASE {
                _ if word >> GENERATION_SHIFT != generation => return Suspend::Gone,
                LIVE | PARKED | SUSPENDED if word & SUSPEND_REQUESTED != 0 => {
                    return Suspend::Already;
                }
                LIVE => Suspend::Asked,
                PARKED => Suspend::Waits,
                _ => return Suspend::Gone,
            };
            match self.0.compare_exchange_weak(
                word,
                word | SUSPEND_REQUESTED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return done,
                Err(now) => word = now,
            }
        }
    }

    /// Whether suspension is requested. A relaxed load, for a carrier that holds the microprocess.
    #[inline(always)]
    pub(crate) fn is_suspended(&self) -> bool {
        self.0.load(Ordering::Relaxed) & SUSPEND_REQUESTED != 0
    }

    /// 11. LIVE -> SUSPENDED, if that is still requested. Otherwise returns false, and the caller
    ///     still holds the microprocess. Release: the thread that resumes it publishes its context.
    pub(crate) fn commit_suspend(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & SUSPEND_REQUESTED != 0 {
            debug_assert_eq!(word & PHASE, LIVE);
            let suspended = (word & !PHASE) | SUSPENDED;
            match self.0.compare_exchange_weak(word, suspended, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// 12. SUSPENDED -> LIVE, or withdraws the request.
    pub(crate) fn resume(&self, generation: u64) -> Resume {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let (next, done) = match word & PHASE {
                _ if word >> GENERATION_SHIFT != generation => return Resume::Gone,
                LIVE | PARKED if word & SUSPEND_REQUESTED == 0 => return Resume::Already,
                LIVE | PARKED => (word & !SUSPEND_REQUESTED, Resume::Cleared),
                SUSPENDED => ((word & !(PHASE | SUSPEND_REQUESTED)) | LIVE, Resume::Queue),
                _ => return Resume::Gone,
            };
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return done,
                Err(now) => word = now,
            }
        }
    }

    /// 7. PARKED or SUSPENDED -> ABANDONED: the microprocess never runs again, and its memory is
    ///    not reused.
    pub(crate) fn abandon(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        matches!(word & PHASE, PARKED | SUSPENDED)
            && self
                .0
                .compare_exchange(
                    word,
                    (word & !PHASE) | ABANDONED,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok()
    }
}

#[cfg(all(test, loom))]
#[path = "state/tests/loom.rs"]
mod tests;
