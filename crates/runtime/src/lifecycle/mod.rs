//! The life of a microprocess: spawn, suspend and resume, changes of priority, end and join,
//! scopes; and the end of the runtime.
//!
//! A closure comes in at `spawn`, its outcome leaves at `join`. May use `wait` and what it may use.

pub(crate) mod join;
pub(crate) mod process_handlers;
pub(crate) mod scope_data;
pub(crate) mod shutdown;
pub(crate) mod spawn;
pub(crate) mod startup;
pub(crate) mod suspend;
pub(crate) mod thread_builder;
