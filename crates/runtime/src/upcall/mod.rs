//! The user scheduler's half of scheduler activations: hand-off of a VP, preemption, the
//! timekeeper, and sticky microprocesses, which keep their kernel thread.
//!
//! `kumihimo_events` calls into this room with events, and this room acts on VPs through
//! `scheduler`. May use `scheduler` and the rooms that `scheduler` may use.

pub(crate) mod bind;
pub(crate) mod bound;
pub(crate) mod change_check;
pub(crate) mod cpu_sample;
pub mod event_loop;
pub(crate) mod handoff;
pub(crate) mod preempt;
pub(crate) mod regain;
pub mod signals;
pub(crate) mod sticky;
pub(crate) mod sticky_return;
pub(crate) mod timekeeper;
pub mod unknown_wait;
pub(crate) mod user_scheduler;
pub(crate) mod waiter_release;
