//! Watchdog: detects a user scheduler that violates the event protocol, whichever it is (P0, 3.4).
//!
//! - `config`: what is detected, and what is done about it.
//! - `state`: what the threads of the pool record for the watchdog.
//!
//! Records flow from the pool into the state; the watchdog's thread (`scan`) reads them. The room
//! uses `linux` and `loom`.
//!
//! # Detection
//!
//! A kernel thread of its own, which runs nothing of the user scheduler's, looks at the shared page
//! four times in each *bound*, and sleeps while nothing runs. (The timekeeper runs
//! [`tick`](crate::sched::UserScheduler::tick) and
//! [`blocked`](crate::sched::UserScheduler::blocked), and may itself be stuck.) Other threads do
//! nothing for it beyond a store where a VP rests, is asked for or raised.
//!
//! - *mask never cleared*: proof: `PROBE` is set in `pending` of a masked slot; the next unmask
//!   takes it. Still there after the bound of the kernel thread's own CPU time; overridden: the VP
//!   is written off.
//! - *Blocked never answered*: proof: the same call of `blocked` is under way after the bound;
//!   overridden: its kernel thread counts no longer as one of the pool, another takes its place;
//!   the VP is written off.
//! - *no yield after Preempted*: proof: raised, and the same microprocess runs on for the bound of
//!   CPU time although [`outranked`](crate::sched::UserScheduler::outranked) says that it should
//!   not; overridden: the VP is taken from its slot and goes to a spare, as if its kernel thread
//!   had blocked.
//! - *user scheduler itself blocked*: proof: as the first, but the kernel thread sleeps in the
//!   kernel, without having said so ([`KernelThread::rest`](crate::KernelThread::rest));
//!   overridden: as the first.
//!
//! *Written off*: the scheduler's data of that VP are in use, so nobody else may carry it. But
//! nobody waits for it either: [`Kernel::is_vp_stalled`](crate::Kernel::is_vp_stalled) says that it
//! is, and the user scheduler is told ([`overridden`](crate::sched::UserScheduler::overridden)), so
//! that what would go there goes elsewhere. Both end when the mask is cleared, or the answer comes.
//!
//! Time is the kernel thread's own on a core, in user mode, and that in which it slept at both ends
//! of a look that it hardly ran in. One that gets no core collects neither; nor does a process that
//! is stopped, or in a debugger, since a look counts for two paces at most.

pub(crate) mod config;
pub(crate) mod state;

pub use config::{Distrust, OnMisbehaviour, Violation};
