//! The user's interface: threads and their handles, and the builder that starts a runtime.
//!
//! Nothing of the crate imports this room except the crate's root, which re-exports it.

pub mod runtime;
pub mod thread;
