//! Microprocesses as records: the state word, the record, ids, and the words through which wakers
//! reach a microprocess.
//!
//! A waker changes the state word; the thread that moves it to LIVE queues the record in the rooms
//! above. Protocols on one word have loom models in `tests/loom.rs`.
//! May use `process` and `loom`.

#[cfg(not(loom))]
pub(crate) mod after_switch;
#[cfg(not(loom))]
pub(crate) mod foreign_thread;
#[cfg(not(loom))]
pub(crate) mod id_prefix;
#[cfg(not(loom))]
pub(crate) mod identity;
#[cfg(not(loom))]
pub(crate) mod prefetch;
#[cfg(not(loom))]
pub(crate) mod record;
pub(crate) mod state;
pub(crate) mod sticky_parker;
#[cfg(not(loom))]
pub(crate) mod sticky_state;
#[cfg(not(loom))]
pub(crate) mod wait_reason;
#[cfg(not(loom))]
pub(crate) mod waiter;
pub(crate) mod wake_flag;
