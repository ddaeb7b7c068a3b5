//! What a virtual processor without work sleeps on and is woken by: its cell on the board, timers,
//! descriptors and other address spaces; and what it does before it sleeps.
//!
//! The loop in `scheduler` drives these parts; they wake microprocesses through their records. May
//! use the rooms from `memory` down.

pub(crate) mod busy_poll;
pub(crate) mod poller;
pub mod remote_wake;
pub(crate) mod sleep;
pub(crate) mod timer;
pub(crate) mod yield_core;
