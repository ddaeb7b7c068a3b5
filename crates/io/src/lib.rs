//! Sockets, files, pipes, child processes and signals as blocking calls of microprocesses.
//!
//! One rule stands behind this crate: nothing that a kernel thread could leave half done stays with
//! that kernel thread. A call is first made without waiting; if it would block, the *microprocess*
//! waits for readiness and its virtual processor goes on. What has no readiness (files, paths) is a
//! plain call: its kernel thread sleeps, and the virtual processor moves.

// Its macros serve the other modules, too.
#[macro_use]
pub mod net;
mod descriptor;
pub mod fs;
pub mod fuse;
mod handles;
pub mod io;
pub mod process;
pub mod signal;
