//! What every blocking type stands on: the wait list, its spin lock, and their small helpers.
//!
//! A type keeps its waiters in a `waitlist::Queue` under a `list_lock::ListLock`; a waiter parks
//! and a waker wakes it through [`crate::loom`], that is, the runtime. `lockrank` checks the order
//! of the locks in debug builds; `deadline` and `unwind` serve waits with a limit and waits that a
//! cancellation ends. Uses nothing else of the crate.

pub(crate) mod deadline;
#[cfg(not(loom))]
pub(crate) mod list_lock;
#[cfg(loom)]
#[path = "list_lock/loom.rs"]
pub(crate) mod list_lock;
pub(crate) mod lockrank;
pub(crate) mod unwind;
pub(crate) mod waitlist;
