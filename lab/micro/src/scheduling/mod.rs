//! Benchmarks of the scheduler: queues, priorities, preemption, and events of the kernel.
//!
//! - `queues`, `spread`, `ready`: how work is queued and reaches other virtual processors.
//! - `priority`, `inversion`: which microprocess runs first, here and over gates.
//! - `preempt`, `preempted`, `holder`, `events`: what a switch by force or by an event costs.
//!
//! A request comes in as keys of the command line and goes out as samples on standard output.
//! `queues` runs works of `threads`; the others use the crate's `variant`.

pub mod events;
pub mod holder;
pub mod inversion;
pub mod preempt;
pub mod preempted;
pub mod priority;
pub mod queues;
pub mod ready;
pub mod spread;
