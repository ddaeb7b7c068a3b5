//! Common base of all blocking types: the wait list, its spin lock, and helpers.
//!
//! A type keeps its waiters in a `waitlist::Queue` under a `list_lock::ListLock`. Waiters park and
//! wakers wake them through [`crate::loom`], which stands for the runtime. `lockrank` checks the
//! order of the locks in debug builds. `deadline` and `unwind` support waits with a time limit and
//! waits that a cancellation ends. Depends on no other module of the crate except `loom`.

pub(crate) mod deadline;
#[cfg(not(loom))]
pub(crate) mod list_lock;
#[cfg(loom)]
#[path = "list_lock/loom.rs"]
pub(crate) mod list_lock;
pub(crate) mod lockrank;
pub(crate) mod unwind;
pub(crate) mod waitlist;
