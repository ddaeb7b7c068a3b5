//! Locks of the C library on microprocesses, and where they wait.
//!
//! [`lot`]: where microprocesses wait for an address. [`mutex`], [`condition`], [`rwlock`],
//! [`semaphore`], [`barrier`], [`spin`] and [`futex`] are built on it. The models in
//! `tests/loom.rs` run these files, with a C library and a runtime of a few lines.

pub(crate) mod barrier;
pub(crate) mod condition;
pub(crate) mod futex;
pub(crate) mod lot;
pub(crate) mod mutex;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
pub(crate) mod spin;
