//! Waiting for one another: what `std::sync` has, for microprocesses and kernel threads alike,
//! mixed; beyond that semaphores, channels with many receivers, `select!` and the papers'
//! synchronous message.
//!
//! Everything blocks the calling *microprocess*; a caller that is a plain kernel thread blocks as
//! such. All stand on one wait list (`wait/waitlist.rs`) and on the runtime's `park` and `wake`,
//! and take no kernel lock of their own.

mod barrier;
mod channel;
mod condvar;
mod init;
mod lock;
mod loom;
pub mod msg;
mod semaphore;
#[cfg(all(test, loom))]
mod tests;
mod wait;

/// What needs no runtime, under the same names as in `std::sync`.
pub use std::sync::{Arc, Weak, atomic};

pub use barrier::{Barrier, BarrierWaitResult};
#[doc(hidden)]
pub use channel::select;
pub use channel::{mpmc, mpsc};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use init::lazylock::LazyLock;
pub use init::once::{Once, OnceState};
pub use init::oncelock::OnceLock;
pub use lock::mutex::{Mutex, MutexGuard};
pub use lock::poison;
pub use lock::poison::{LockResult, PoisonError, TryLockError, TryLockResult};
pub use lock::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(loom))]
pub use lock::spinlock::{SpinLock, SpinLockGuard};
pub use semaphore::{Semaphore, SemaphorePermit};

/// For spin locks of one's own: the holder registers, and a waiter gives way where the holder does
/// not run.
#[cfg(not(loom))]
pub mod spinning {
    pub use kumihimo_runtime::spinning::{Holding, Pause, hold};
}
