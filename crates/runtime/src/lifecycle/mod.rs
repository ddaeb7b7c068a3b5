//! The life of a microprocess: spawn, suspend and resume, end and join, scopes; and the start and
//! end of the runtime.
//!
//! A closure enters at `spawn`, and its outcome leaves at `join`. May use `wait` and the rooms that
//! `wait` may use.

pub(crate) mod body;
pub(crate) mod join;
pub mod linked;
pub(crate) mod outcome;
pub(crate) mod process_handlers;
pub(crate) mod scope_data;
pub(crate) mod shutdown;
pub(crate) mod spawn;
pub(crate) mod startup;
pub(crate) mod suspend;
pub(crate) mod thread_attributes;
pub(crate) mod thread_builder;
