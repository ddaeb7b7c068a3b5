//! Policies: where a runnable microprocess is placed. Contains priorities, the [`Policy`] trait and
//! the policies of Kumihimo.
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! A policy is safe code that the application may supply. It is a pure function from the state of a
//! microprocess ([`Info`]) and the reason for the call ([`Why`]) to a [`Placement`]. The mechanism
//! owns the queues and enforces everything else, so the worst effect of a bad policy is a bad
//! choice.
//!
//! - [`FixedPriority`]: first in, first out within a level. No quantum: a microprocess runs until
//!   it blocks, yields or ends.
//! - [`RoundRobin`], the default: first in, first out within a level. Default quantum: 10 ms
//!   ([`RoundRobin::QUANTUM`]).
//! - [`Feedback`]: ordered by depth and time of waiting within a level. Default quantum: 2 ms at
//!   the top, doubled at each depth, 32 ms at the bottom.
//!
//! Levels are exact over all virtual processors, whichever policy chose them. A microprocess of a
//! higher level runs before one of a lower level, except for a few scheduling steps. Nothing
//! starves *within* a level. Below a level that always has a runnable microprocess, all others
//! wait, as strict priorities require.
//!
//! # A bound for the whole address space
//! A policy cannot bound the CPU time of an address space (P0, 3.4), since it places one
//! microprocess at a time. The place for such a bound is between policy and queue, in the runtime's
//! `Placer::place`, through which every placement passes. There the chosen level can be lowered for
//! all microprocesses alike. Where it changes, the VPs take a step as when levels begin to differ.
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
