//! Waiting for one another: what `std::sync` has, for microprocesses and kernel threads alike,
//! mixed; beyond that semaphores, channels with many receivers, `select!` and the papers'
//! synchronous message.
//!
//! Everything blocks the calling *microprocess*; a caller that is a plain kernel thread blocks as
//! such. All stand on one wait list (`waitlist.rs`) and on the runtime's `park` and `wake`, and
//! take no kernel lock of their own.

mod barrier;
mod buffer;
mod chan;
mod channel_lock;
mod condvar;
mod deadline;
#[cfg(not(loom))]
mod inherit;
#[cfg(loom)]
#[path = "inherit/loom.rs"]
mod inherit;
mod lazylock;
#[cfg(not(loom))]
mod list_lock;
#[cfg(loom)]
#[path = "list_lock/loom.rs"]
mod list_lock;
mod lockrank;
#[cfg(all(test, loom))]
#[path = "models.rs"]
mod loom;
mod mailbox_table;
pub mod mpmc;
pub mod mpsc;
pub mod msg;
mod mutex;
mod once;
mod oncelock;
pub mod poison;
mod rawmutex;
mod rawrwlock;
mod rwlock;
#[doc(hidden)]
pub mod select;
mod semaphore;
mod shim;
#[cfg(not(loom))]
mod spinlock;
mod unwind;
mod waitlist;

/// What needs no runtime, under the same names as in `std::sync`.
pub use std::sync::{Arc, Weak, atomic};

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use lazylock::LazyLock;
pub use mutex::{Mutex, MutexGuard};
pub use once::{Once, OnceState};
pub use oncelock::OnceLock;
pub use poison::{LockResult, PoisonError, TryLockError, TryLockResult};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Semaphore, SemaphorePermit};
#[cfg(not(loom))]
pub use spinlock::{SpinLock, SpinLockGuard};

/// For spin locks of one's own: the holder registers, and a waiter gives way where the holder does
/// not run.
#[cfg(not(loom))]
pub mod spinning {
    pub use kumihimo_runtime::spinning::{Holding, Pause, hold};
}
