//! Where a runnable microprocess is placed: priorities, the [`Policy`] function and the policies
//! that come with Kumihimo.
//!
//! A policy is injected, safe code: a pure function from what is known about a microprocess
//! ([`Info`]) and the reason for asking ([`Why`]) to a [`Placement`]. The mechanism owns the queues
//! and enforces everything else, so the worst that a bad policy can do is to choose badly.
//!
//! - [`FixedPriority`]: order within a level: first in, first out; default quantum: none: until it
//!   blocks, yields or ends.
//! - [`RoundRobin`], the default: order within a level: first in, first out; default quantum: 10 ms
//!   ([`RoundRobin::QUANTUM`]).
//! - [`Feedback`]: order within a level: by depth and time of waiting; default quantum: 2 ms at the
//!   top, doubled at each depth, 32 ms at the bottom.
//!
//! Levels are exact over all virtual processors, whatever policy chose them: what is of a higher
//! level runs before what is of a lower one, but for a few scheduling steps. Nothing
//! starves *within* a level; below one that never runs dry everything waits, as strict priorities
//! have it.
//!
//! # A bound for the whole address space
//! A bound on the CPU time of an address space (P0, 3.4) is no policy's affair: a policy sees one
//! microprocess at a time. Its place is between policy and queue, in the runtime's `Placer::place`,
//! through which every placement of every microprocess passes: there the level that a policy
//! answered can be lowered for all alike, and where it changes the VPs take a step as when levels
//! begin to differ.
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
