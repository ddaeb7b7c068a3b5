//! Benchmarks of the scheduler: queues, priorities, preemption, and events of the kernel.
//!
//! - `queues`, `spread`, `ready`: queuing of work, and its distribution to other virtual
//!   processors.
//! - `priority`, `inversion`: order by priority, within a process and over gates.
//! - `preempt`, `preempted`, `holder`, `events`: costs of preemptions and of events.
//!
//! A request consists of the keys of the command line. Samples are printed to standard output.
//! `queues` runs workloads of `threads`; the other modules use the crate's `variant`.

pub mod events;
pub mod holder;
pub mod inversion;
pub mod preempt;
pub mod preempted;
pub mod priority;
pub mod queues;
pub mod ready;
pub mod spread;
