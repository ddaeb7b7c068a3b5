//! Sockets as blocking calls of microprocesses.
//!
//! One rule stands behind this crate: nothing that a kernel thread could leave half done stays with that kernel thread. A call is
//! first made without waiting; if it would block, the *microprocess* waits for readiness and its virtual processor goes on.

pub mod net;
