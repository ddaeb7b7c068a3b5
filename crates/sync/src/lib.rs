//! Synchronisation for microprocesses and kernel threads, in any mixture. The crate has the types
//! of `std::sync`, and adds semaphores, channels with several receivers, `select!`, and synchronous
//! messages (P0).
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! A call that blocks suspends the calling *microprocess*; if the caller is a plain kernel thread,
//! the call blocks that thread. All types share one wait list (`wait/waitlist.rs`) and the
//! runtime's `park` and `wake`. They use no kernel lock of their own.

mod barrier;
mod channel;
mod condvar;
mod init;
mod lock;
mod loom;
pub mod msg;
#[cfg(not(loom))]
#[doc(hidden)]
pub mod raw;
mod semaphore;
#[cfg(all(test, loom))]
mod tests;
mod wait;

/// Items of `std::sync` that need no runtime, re-exported under the same names.
pub use std::sync::{Arc, Weak, atomic};

pub use barrier::{Barrier, BarrierWaitResult};
#[doc(hidden)]
pub use channel::select;
pub use channel::{mpmc, mpsc};
/// The receiving ends of [`mpsc`] and [`mpmc`] with all their methods. The channels' own types are
/// aliases of these.
pub mod receiver {
    pub use crate::channel::receiver::{Exclusive, IntoIter, Iter, Receiver, Shared, TryIter};
}

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

/// Building blocks for custom spin locks. The holder registers itself, and a waiter yields while
/// the holder does not run.
#[cfg(not(loom))]
pub mod spinning {
    pub use kumihimo_runtime::spinning::{Holding, Pause, hold};
}
