//! Idling of a VP: the cell in which it sleeps, the sources that wake it (timers, descriptors,
//! other address spaces), and the alternatives to sleeping.
//!
//! The idle loop in `scheduler` drives these parts, and they wake microprocesses through their
//! records. May use the rooms from `memory` down.

pub(crate) mod alarm;
pub(crate) mod busy_poll;
pub(crate) mod descriptor_entry;
pub mod future_wakers;
pub(crate) mod interest;
pub(crate) mod moved_timers;
pub(crate) mod poller;
pub mod remote_wake;
pub(crate) mod sleep;
pub(crate) mod timer;
pub(crate) mod yield_core;
