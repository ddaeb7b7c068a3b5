//! The kernel's half of microprocesses, as seen from user mode.
//!
//! [`kernel`] has the pool of kernel threads and the hand-off of virtual processors among them;
//! [`sched`] the events and the user scheduler's side of the interface (paper P0, 3.1); [`page`]
//! and [`slot`] the shared page, with the protocol by which a virtual processor moves to another
//! kernel thread; [`source`] the four ways to learn that a kernel thread sleeps; [`preempt`] how a
//! running one is interrupted; [`record`] what happened, step by step; [`watchdog`] detects a user
//! scheduler that violates the event protocol.
//!
//! `examples/minimal` is a user scheduler of its own, to begin one's own from.

pub mod barrier;
#[cfg(not(loom))]
pub mod bpf;
mod fatal;
#[cfg(not(loom))]
pub mod kernel;
#[cfg(not(loom))]
pub mod limit;
#[cfg(not(loom))]
pub mod page;
#[cfg(not(loom))]
pub mod perf;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
pub mod preempt;
#[cfg(not(loom))]
pub mod record;
pub mod return_queue;
#[cfg(not(loom))]
pub mod sched;
pub mod slot;
#[cfg(not(loom))]
pub mod source;
#[cfg(not(loom))]
mod starvation;
mod stderr_signal_safe;
#[cfg(not(loom))]
mod thread;
#[cfg(not(loom))]
pub mod thread_sampler;
#[cfg(not(loom))]
mod timekeeper;
#[cfg(not(loom))]
pub mod trap;
#[cfg(not(loom))]
mod unavailable;
#[cfg(not(loom))]
mod vp_wait;
#[cfg(not(loom))]
pub mod watch;
#[cfg(not(loom))]
pub mod watchdog;
#[cfg(all(test, loom))]
mod whole;

#[cfg(not(loom))]
pub use kernel::Kernel;
#[cfg(not(loom))]
pub use record::{Record, Step};
pub use slot::{Claim, Slot};
#[cfg(not(loom))]
pub use thread::KernelThread;
#[cfg(not(loom))]
pub use unavailable::Unavailable;

#[cfg(not(loom))]
pub(crate) use std::{hint, sync::atomic};

#[cfg(loom)]
pub(crate) use loom::hint;

#[cfg(loom)]
pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::*;
    /// The membarrier of the model is a fence on both sides.
    pub(crate) fn compiler_fence(order: Ordering) {
        fence(order);
    }
}
