//! The user's interface: threads and their handles, and the builder that starts a runtime.
//!
//! Nothing of the crate imports this room except the crate's root, which re-exports it.

pub(crate) mod handle;
pub(crate) mod join_handle;
pub(crate) mod one_to_one;
pub mod runtime;
pub(crate) mod scope;
pub(crate) mod suspend;
pub mod thread;
