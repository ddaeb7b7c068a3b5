//! The holder of a core from the point of view of a waiter.
//!
//! `thread_status` reads the state of its kernel thread from /proc; `holder_watch` derives the
//! waiter's next action from that state and from the slot's word. Pure functions except for reading
//! /proc. Depends on `slot` and on the reasons of `board::overrides`; used by `seat` only.

pub(crate) mod holder_watch;
pub(crate) mod thread_status;
