//! The user scheduler's answers to the kernel's half (scheduler activations): hand-off of a VP,
//! preemption, the timekeeper, and microprocesses that keep their kernel thread.
//!
//! `kumihimo_events` calls in here; the answers act on VPs through `scheduler`. May use `scheduler`
//! and what it may use.

pub(crate) mod bound;
pub(crate) mod handoff;
pub(crate) mod preempt;
pub(crate) mod regain;
pub(crate) mod sticky;
pub(crate) mod timekeeper;
pub(crate) mod turn_wait;
pub(crate) mod user_scheduler;
