//! The mechanism of Kumihimo: microprocesses on virtual processors.
//!
//! Where to begin reading: [`vp`](../src/kumihimo_runtime/vp.rs.html), the loop; `state.rs`, the
//! one word that a microprocess's life is told by; `spawn.rs` and `join.rs`, the way in and out;
//! `idle.rs`, how a VP sleeps and is woken; `handoff.rs`, how it changes kernel threads.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

pub(crate) mod starvation;
mod state;

mod berth;
mod called;
mod exact;

#[cfg(not(loom))]
pub mod anchored;
#[cfg(not(loom))]
mod answer;
#[cfg(not(loom))]
pub mod board;
#[cfg(not(loom))]
pub mod cancel;
#[cfg(not(loom))]
mod carrier;
#[cfg(not(loom))]
mod courtesy;
#[cfg(not(loom))]
mod deadlock;
#[cfg(not(loom))]
pub mod debug;
#[cfg(not(loom))]
mod dump;
#[cfg(not(loom))]
mod dump_signal;
#[cfg(not(loom))]
mod ebb;
#[cfg(not(loom))]
pub mod entries;
#[cfg(not(loom))]
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod futex;
#[cfg(not(loom))]
pub mod future;
#[cfg(not(loom))]
mod handoff;
#[cfg(not(loom))]
mod identity;
#[cfg(not(loom))]
mod idle;
#[cfg(not(loom))]
mod instance;
#[cfg(not(loom))]
pub mod intake;
#[cfg(not(loom))]
mod join;
#[cfg(not(loom))]
mod lone;
#[cfg(not(loom))]
pub mod membership;
#[cfg(not(loom))]
mod metrics;
#[cfg(not(loom))]
mod mode;
#[cfg(not(loom))]
mod no_events;
#[cfg(not(loom))]
mod one_to_one;
#[cfg(not(loom))]
pub mod park;
#[cfg(not(loom))]
mod patience;
#[cfg(not(loom))]
mod place;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod preempt;
#[cfg(not(loom))]
mod priority;
#[cfg(not(loom))]
pub mod readiness;
#[cfg(not(loom))]
mod record;
#[cfg(not(loom))]
pub mod region;
#[cfg(not(loom))]
mod requests;
#[cfg(not(loom))]
pub mod rows;
#[cfg(not(loom))]
pub mod runtime;
#[cfg(not(loom))]
mod scope;
#[cfg(not(loom))]
mod shutdown;
#[cfg(not(loom))]
mod slice;
#[cfg(not(loom))]
mod spans;
#[cfg(not(loom))]
mod spawn;
#[cfg(not(loom))]
pub mod spinning;
#[cfg(not(loom))]
mod stand_in;
#[cfg(not(loom))]
mod sticky;
#[cfg(not(loom))]
mod suspend;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
mod tick;
#[cfg(not(loom))]
mod timer;
#[cfg(not(loom))]
mod tracing;
#[cfg(not(loom))]
mod vp;
#[cfg(not(loom))]
pub mod wrapped;

#[cfg(not(loom))]
pub use mode::supports;
#[cfg(not(loom))]
pub use no_events::{Locked, NoEvents, lock};
