//! The kernel's half, as seen from user mode.
//!
//! Here is the [`Slot`]: a kernel thread's record of which virtual processor it carries, with the protocol by which a VP
//! moves to another kernel thread while the first one is away in the kernel ([`slot`]). Everything the kernel half and the
//! user scheduler agree on goes through slots.

pub mod barrier;
#[cfg(not(loom))]
pub mod perf;
#[cfg(not(loom))]
mod refused;
pub mod slot;
#[cfg(not(loom))]
pub mod watch;

#[cfg(not(loom))]
pub use refused::Refused;
pub use slot::{Claim, Slot};

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
