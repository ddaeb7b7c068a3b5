//! Microprocesses as records: the record, its ID, references to it, and the waiters through which
//! wakers reach it.
//!
//! A waker changes the state word ([`protocol::state`]). The thread that moves the state to LIVE
//! queues the record in a higher room. May use `process` and `loom`.

#[cfg(not(loom))]
pub(crate) mod after_switch;
pub(crate) mod attributes;
pub(crate) mod counters;
pub(crate) mod cpu_clock;
#[cfg(not(loom))]
pub(crate) mod foreign_thread;
pub(crate) mod id_prefix;
#[cfg(not(loom))]
pub(crate) mod identity;
pub mod lock_layout;
pub(crate) mod own_attributes;
pub(crate) mod prefetch;
pub(crate) mod protocol;
pub(crate) mod record;
pub(crate) mod sticky_state;
pub(crate) mod wait_reason;
#[cfg(not(loom))]
pub(crate) mod waiter;
#[cfg(loom)]
pub(crate) use crate::model::waiter;
