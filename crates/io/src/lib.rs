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
//! uses `fs`, `net` and `process`, to copy between their descriptors. Below them, `descriptor.rs`
//! reads and writes any descriptor, `limit.rs` is the time limit of a call, and `handles.rs` enters
//! each handle in the resource table.

mod descriptor;
mod fd_traits;
pub mod fs;
pub mod fuse;
mod handles;
pub mod io;
mod limit;
pub mod net;
pub mod process;
pub mod signal;
mod type_view;
