//! The runtime of Kumihimo: microprocesses on virtual processors.
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! Rooms, from low to high (`layers.txt`): a module imports only from its own room and from lower
//! ones. A call of an inherent method that a higher room defines is not an import (see below).
//!
//! Where to start reading:
//! - `scheduler/switch.rs`: the switch loop;
//! - `microprocess/protocol/state.rs`: the state word of a microprocess;
//! - `lifecycle/spawn.rs` and `lifecycle/join.rs`: the begin and end of a microprocess;
//! - `scheduler/idling.rs` and `idle/sleep.rs`: how a VP sleeps and is woken;
//! - `upcall/handoff.rs`: how a VP moves between kernel threads.
//!
//! A type is defined in the lowest room that its fields allow. Methods that need a higher room are
//! in an `impl` block there: `Vp`, `Carrier`, `KernelThread`, `Instance` and `Waiter` have such
//! blocks.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
mod config;
mod loom;
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
#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod observe;
mod priority;
#[cfg(not(loom))]
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

#[cfg(loom)]
use model::{idle, kernel_thread, memory, wait};
/// Readiness, and the kernel's half of it, for the models of higher crates.
#[cfg(loom)]
pub use {model::epoll_set, wait::readiness};

#[cfg(not(loom))]
pub use kumihimo_events::wakeup;

#[cfg(not(loom))]
pub use crate::{
    api::runtime,
    kernel_thread::no_events::{Locked, NoEvents, lock},
    lifecycle::linked,
    observe::debug,
    process::mode::supports,
    resource::{builtin_kinds, kind_table, membership, region},
    upcall::signals,
    wait::{any_ready, cancel, direct_read, future, interrupt, readiness, spinning, syscall_batch},
};

/// Microprocesses with the interface of `std::thread`, and extensions of it.
#[cfg(not(loom))]
pub mod thread {
    pub use crate::api::handle::{Thread, ThreadId, current};
    pub use crate::api::join_handle::JoinHandle;
    pub use crate::api::scope::{Scope, ScopedJoinHandle, scope, scope_until};
    pub use crate::api::thread::{bind, current_priority, park, park_timeout, park_until, spawn};
    pub use crate::lifecycle::suspend::Suspended;
    pub use crate::lifecycle::thread_builder::Builder;
    pub use crate::wait::blocking::blocking;
    pub use crate::wait::sleep::{sleep, sleep_until, yield_now};
    pub use std::thread::{AccessError, LocalKey, Result, available_parallelism, panicking};
}

/// Counters of microprocesses.
#[cfg(not(loom))]
pub mod counters {
    pub use crate::observe::counters::{Counters, Waits, account, counters};
}

/// Locks with their holders and waiters.
#[cfg(not(loom))]
pub mod locks {
    pub use crate::observe::locks::locks;
}

/// Profiles.
#[cfg(not(loom))]
pub mod profile {
    pub use crate::observe::profile::pprof::{Profile, UNKNOWN, encode, pprof};
}

/// The number of virtual processors in use, while the runtime runs.
#[cfg(not(loom))]
pub mod retirement {
    pub use crate::scheduler::retirement::set_open_vps;
}

/// Waiting and waking: the primitives on which every blocking operation of the crates above is
/// built.
#[cfg(not(loom))]
pub mod park {
    pub use crate::kernel_thread::no_events::is_in_runtime;
    pub use crate::microprocess::lock_layout;
    pub use crate::microprocess::wait_reason::Wait;
    pub use crate::microprocess::waiter::Waiter;
    pub use crate::upcall::bind::is_bound;
    pub use crate::upcall::regain::switch_point;
    pub use crate::wait::park::{
        current, is_microprocess, may_switch, on_vp, park, sleeps_are_told, vps,
        waits_as_microprocess,
    };
}

/// Threads that wait for a set of descriptors of their own.
#[cfg(not(loom))]
pub mod event_loop {
    pub use crate::upcall::event_loop::{EventLoop, IDLE, has_left_vp, return_to_vp};
}

/// The wakers of futures that are code of the program, and the thread that calls them.
#[cfg(not(loom))]
pub mod waker_service {
    pub use crate::idle::future_wakers::service::{is_needed, set_server, take_ready};
}

/// The board of this user's address spaces, and this address space's row there.
#[cfg(not(loom))]
pub mod board {
    pub use crate::process::board::{RESCAN_INTERVAL, alone, arbitrates, path_in, rescan};
    pub use crate::resource::board_access::{neighbour, row, seat};
}

/// Notifications from other address spaces. The VPs check for them, at each scheduling step and
/// before they sleep, so that no thread stands between a client and the server.
#[cfg(not(loom))]
pub mod remote_wake {
    pub use crate::idle::remote_wake::{RemoteWakeHandler, install};
    pub use crate::kernel_thread::affinity::{KeepToCores, begin_on_all_cores};
    pub use crate::process::clock::monotonic;
    pub use crate::process::cores::core;
    pub use crate::resource::board_access::notify;
    pub use crate::scheduler::posts::defer_flush;
}
