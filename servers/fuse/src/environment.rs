//! Environment of an organisation: the only part in which two threaded organisations differ.

use std::io;
use std::time::Duration;

use kumihimo::sync::Arc;
use kumihimo_store::{Disk, FileDisk};

use crate::intake::{Intake, Mounted};

/// Kind of thread of an organisation, and how such a thread waits for messages, the disk and time.
/// Locks are not part of it, because the locks of `kumihimo::sync` block any kind of caller.
pub trait Environment: Send + Sync + 'static {
    /// Starts a detached thread.
    ///
    /// # Errors
    /// No memory for the thread, or the limit of threads is reached.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<()>;

    /// Returns whether each thread serves all mounts. Otherwise each mount has its own threads.
    fn serves_all(&self) -> bool {
        false
    }

    /// Creates the intakes of these mounts, over which `threads` receivers are distributed.
    ///
    /// # Errors
    /// As opening `/dev/fuse`.
    fn intakes(&self, mounts: &[Mounted], threads: usize) -> io::Result<Vec<Arc<Intake>>>;

    /// Returns the maximum number of threads of a pool.
    fn most(&self) -> usize;

    /// Returns the store's disk, with the access that suits such a thread.
    fn disk(&self, disk: FileDisk) -> Box<dyn Disk>;

    /// Returns the function that makes such a thread sleep.
    fn pause(&self) -> fn(Duration);
}
