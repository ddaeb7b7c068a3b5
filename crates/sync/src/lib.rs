//! Waiting for one another: what `std::sync` has, for microprocesses and kernel threads alike, mixed; beyond that semaphores,
//! channels with many receivers, `select!` and the papers' synchronous message.
//!
//! Everything blocks the calling *microprocess*; a caller that is a plain kernel thread blocks as such. All stand on one
//! wait list (`waitlist.rs`) and on the runtime's `park` and `wake`, and take no kernel lock of their own.

mod buffer;
mod chan;
mod condvar;
mod deadline;
#[cfg(not(loom))]
mod inherit;
#[cfg(loom)]
#[path = "inherit_model.rs"]
mod inherit;
mod lockrank;
pub mod mpsc;
pub mod msg;
mod mutex;
pub mod poison;
mod rawmutex;
mod semaphore;
mod shim;
mod spin;
mod unwind;
mod waitlist;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use poison::{LockResult, PoisonError, TryLockError, TryLockResult};
pub use semaphore::{Semaphore, SemaphorePermit};
