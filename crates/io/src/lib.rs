//! Sockets, files, pipes, child processes and signals as blocking calls of microprocesses.
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! Invariant of this crate: no operation in progress is bound to a kernel thread. A call is first
//! attempted without waiting. If it would block, the *microprocess* waits for readiness, and its
//! virtual processor runs others. Calls without readiness (files, paths) are plain calls: their
//! kernel thread sleeps, and the virtual processor moves to another one.
//!
//! `net`, `fs`, `io`, `process`, `signal` and `fuse` are public and stand side by side; `io` also
//! uses `fs`, `net` and `process`, to copy between their descriptors. Below them, `attempt.rs` is
//! the loop of every such call, `descriptor.rs` reads and writes any descriptor, `limit.rs` is the
//! time limit of a call, and `handles.rs` enters each handle in the resource table.

#[cfg_attr(loom, allow(dead_code))] // Its callers are left out there.
mod attempt;
#[cfg(not(loom))]
mod descriptor;
#[cfg(not(loom))]
mod fd_traits;
#[cfg(not(loom))]
pub mod fs;
#[cfg(not(loom))]
pub mod fuse;
#[cfg(not(loom))]
mod handles;
#[cfg(not(loom))]
pub mod io;
#[cfg(not(loom))]
mod limit;
#[cfg(not(loom))]
pub mod net;
#[cfg(not(loom))]
pub mod polled;
#[cfg(not(loom))]
pub mod process;
#[cfg(not(loom))]
pub mod signal;
#[cfg(not(loom))]
mod type_view;
