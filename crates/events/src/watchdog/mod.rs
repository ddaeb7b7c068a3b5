//! Watchdog: detects a user scheduler that violates the event protocol (P0, 3.4).
//!
//! - `config`: the violations and the response.
//! - `state`: what the threads of the pool record for the watchdog.
//!
//! Records flow from the pool into the state; the watchdog's thread (`scan`) reads them. The room
//! uses `linux` and `loom`.
//!
//! # Detection
//!
//! A separate kernel thread scans the shared page four times in each *bound*, and sleeps while no
//! VP runs. It calls none of the user scheduler's code that may block. The timekeeper cannot do
//! this: it calls [`tick`](crate::sched::UserScheduler::tick) and
//! [`blocked`](crate::sched::UserScheduler::blocked), and may itself be stuck. The other threads
//! only execute a store where a VP begins or ends to rest, where `blocked` is called, and where an
//! event is raised.
//!
//! - *mask never cleared*: the watchdog sets `PROBE` in `pending` of a masked slot, and the next
//!   unmask takes it. Violation: the probe is still there after the bound, in the kernel thread's
//!   CPU time. Override: the VP is written off.
//! - *Blocked never answered*. Violation: the same call of `blocked` is under way after the bound.
//!   Override: its kernel thread no longer counts as one of the pool, another thread replaces it,
//!   and the VP is written off.
//! - *no yield after Preempted*. Violation: *Preempted* was raised, and the same microprocess runs
//!   for the bound, in CPU time, although [`outranked`](crate::sched::UserScheduler::outranked)
//!   reports that another one should run. Override: a spare takes the VP from its slot, as if its
//!   kernel thread had blocked.
//! - *user scheduler itself blocked*. Violation: as the first, but the kernel thread sleeps in the
//!   kernel without a call of [`KernelThread::rest`](crate::KernelThread::rest). Override: as the
//!   first.
//!
//! *Written off*: the scheduler's data of that VP are in use, so no other thread may carry it. No
//! thread waits for it either: [`Kernel::is_vp_stalled`](crate::Kernel::is_vp_stalled) returns
//! true. The user scheduler receives [`overridden`](crate::sched::UserScheduler::overridden) and
//! directs work to other VPs. Both end when the mask is cleared or `blocked` returns.
//!
//! The time that counts is the time that the kernel thread ran in user mode, and the time that it
//! slept. A scan counts an interval as sleep if the thread ran for less than half of it and sleeps
//! at its end. A thread that gets no core accumulates neither. A process that is stopped, or in a
//! debugger, accumulates little, since the interval between two scans counts for at most half of
//! the bound.

pub(crate) mod config;
pub(crate) mod state;

pub use config::{Distrust, OnMisbehaviour, Violation};
