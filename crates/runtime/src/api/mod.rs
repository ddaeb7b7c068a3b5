//! The public interface: threads and their handles, and the builder that starts a runtime.
//!
//! Calls enter here and go to lower rooms: `spawn` to `lifecycle`, waits to `wait`, the builder to
//! `scheduler`. Only the crate's root imports this room, and re-exports it. May use all rooms.

pub(crate) mod builder;
pub(crate) mod handle;
pub(crate) mod join_handle;
pub(crate) mod one_to_one;
pub mod runtime;
pub(crate) mod scope;
pub(crate) mod stack_watch;
pub(crate) mod suspend;
pub mod thread;
