//! The mechanism of Kumihimo: microprocesses on virtual processors.
//!
//! Rooms, from low to high (`layers.txt`): a module imports only from its own room and from those
//! below it.
//!
//! Where to begin reading: `scheduler/vp.rs`, the loop; `microprocess/state.rs`, the state word of
//! a microprocess; `lifecycle/spawn.rs` and `lifecycle/join.rs`, the way in and out;
//! `idle/sleep.rs`, how a VP sleeps and is woken; `upcall/handoff.rs`, how it changes kernel
//! threads.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
mod environment;
#[cfg(not(loom))]
mod trace_hooks;

#[cfg(not(loom))]
mod api;
#[cfg(not(loom))]
mod idle;
#[cfg(not(loom))]
mod kernel_thread;
#[cfg(not(loom))]
mod lifecycle;
#[cfg(not(loom))]
mod memory;
mod microprocess;
#[cfg(not(loom))]
mod observe;
mod priority;
mod process;
#[cfg(not(loom))]
mod resource;
#[cfg(not(loom))]
mod scheduler;
#[cfg(not(loom))]
mod syscall;
#[cfg(not(loom))]
mod upcall;
#[cfg(not(loom))]
mod wait;

#[cfg(not(loom))]
pub use crate::{
    api::{runtime, thread},
    idle::remote_wake,
    kernel_thread::no_events::{Locked, NoEvents, lock},
    observe::debug,
    process::{board, mode::supports},
    resource::{builtin_kinds, kind_table, membership, region},
    syscall::{direct_read, syscall_batch},
    wait::{cancel, future, park, readiness, spinning},
};
