//! Microprocesses as records: the record, its ID, references to it, and the waiters through which
//! wakers reach it.
//!
//! A waker changes the state word ([`protocol::state`]). The thread that moves the state to LIVE
//! queues the record in a higher room. May use `process` and `loom`.

#[cfg(not(loom))]
pub(crate) mod after_switch;
#[cfg(not(loom))]
pub(crate) mod attributes;
#[cfg(not(loom))]
pub(crate) mod foreign_thread;
#[cfg(not(loom))]
pub(crate) mod id_prefix;
#[cfg(not(loom))]
pub(crate) mod identity;
#[cfg(not(loom))]
pub(crate) mod own_attributes;
#[cfg(not(loom))]
pub(crate) mod prefetch;
pub(crate) mod protocol;
#[cfg(not(loom))]
pub(crate) mod record;
#[cfg(not(loom))]
pub(crate) mod sticky_state;
#[cfg(not(loom))]
pub(crate) mod wait_reason;
#[cfg(not(loom))]
pub(crate) mod waiter;
