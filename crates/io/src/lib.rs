//! Sockets, files, pipes, child processes and signals as blocking calls of microprocesses.
//!
//! One rule stands behind this crate: nothing that a kernel thread could leave half done stays with
//! that kernel thread. A call is first made without waiting; if it would block, the *microprocess*
//! waits for readiness and its virtual processor goes on. What has no readiness (files, paths) is a
//! plain call: its kernel thread sleeps, and the virtual processor moves.

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
