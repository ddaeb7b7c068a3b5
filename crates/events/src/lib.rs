//! The kernel's half of microprocesses, implemented in user mode.
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! - [`kernel`]: the pool of kernel threads and the hand-off of virtual processors (VPs) among
//!   them.
//! - [`sched`]: the events and the user scheduler's side of the interface (P0, 3.1).
//! - [`page`] and [`slot`]: the shared page and the protocol by which a VP moves to another kernel
//!   thread.
//! - [`source`]: the four event sources, which detect that a kernel thread sleeps.
//! - [`preempt`]: interruption of a running kernel thread.
//! - [`record`]: a recorder of the protocol's steps.
//! - [`watchdog`]: detects a user scheduler that violates the event protocol.
//!
//! P0 is the paper that defines the protocol. `examples/minimal` is a complete user scheduler and a
//! starting point for a new one.
//!
//! The modules live in rooms, from low to high: `loom`, `report`, `handoff`, `linux`, `source`,
//! `preempt`, `watchdog`, `pool`, `scan`, `open`. A room imports from lower ones only
//! (`layers.txt`). Under loom only the first three are compiled: they hold the protocols that have
//! models.

#![cfg_attr(loom, allow(dead_code))] // // Loom builds omit the rooms that call these items.

mod handoff;
#[cfg(not(loom))]
mod linux;
mod loom;
#[cfg(not(loom))]
mod open;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
pub mod preempt;
#[cfg(not(loom))]
pub mod random;
mod report;
#[cfg(not(loom))]
mod scan;
#[cfg(not(loom))]
pub mod source;
#[cfg(not(loom))]
pub mod watchdog;

pub use handoff::slot::{Claim, Slot};
pub use handoff::{barrier, carriers, page, return_queue, slot};
pub use report::unavailable::Unavailable;
#[cfg(not(loom))]
pub use {
    linux::{bpf, cores, limit, perf, wakeup, watch},
    pool::Unparker,
    pool::counts::Counts,
    pool::kernel::Kernel,
    pool::kernel_thread::KernelThread,
    pool::record::{Record, Step},
    pool::{kernel, record, sched, trap},
    preempt::{cpu_profiler, thread_sampler},
};
