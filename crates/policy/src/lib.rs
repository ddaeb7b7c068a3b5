//! Where a runnable microprocess is placed: priorities, the [`Policy`] function and the policies that come with Kumihimo.
//!
//! A policy is injected, safe code: a pure function from what is known about a microprocess ([`Info`]) and the reason for
//! asking ([`Why`]) to a [`Placement`]. The mechanism owns the queues and enforces everything else, so the worst that a bad
//! policy can do is to choose badly.
//!
//! Source: P0 (user-level scheduling policies), P4 (priority levels of the ring).
#![forbid(unsafe_code)]

mod feedback;
mod fixed;
mod place;
mod priority;

pub use feedback::Feedback;
pub use fixed::{FixedPriority, RoundRobin};
pub use place::{Info, Placement, Policy, Why};
pub use priority::{Priority, PriorityError};
