//! Locks around data: the mutex, the readers-writer lock and the spin lock.
//!
//! `rawmutex` and `rawrwlock` contain the lock words and wait lists, without data. `guarded` adds
//! the data, the poison flag and the exclusive guard; `mutex` and `rwlock` are the public types.
//! `inherit` lends the priority of a mutex's waiters to its owner. Depends on `wait`.

pub(crate) mod guarded;
#[cfg(not(loom))]
mod inherit;
#[cfg(loom)]
#[path = "inherit/loom.rs"]
mod inherit;
pub(crate) mod mutex;
pub mod poison;
pub(crate) mod rawmutex;
pub(crate) mod rawrwlock;
pub(crate) mod rwlock;
#[cfg(not(loom))]
pub(crate) mod spinlock;
