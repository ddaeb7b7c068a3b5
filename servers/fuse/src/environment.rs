//! The environment of an organisation: the only part in which two organisations differ.

use std::io;
use std::time::Duration;

use kumihimo::sync::Arc;
use kumihimo_store::{Disk, FileDisk};

use crate::intake::{Intake, Mounted};

/// An organisation's kind of thread, and how such a thread waits: for messages, for the disk, for
/// time. Locks are not here: `kumihimo::sync`'s block their caller.
pub trait Environment: Send + Sync + 'static {
    /// Begins a thread that nobody waits for.
    ///
    /// # Errors
    /// That there is no memory for it, or too many.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<()>;

    /// Whether each of its threads serves all mounts. Else each mount has threads of its own.
    fn serves_all(&self) -> bool {
        false
    }

    /// Where the requests of these mounts come in: one or several places, over which `threads` that
    /// receive are spread.
    ///
    /// # Errors
    /// As opening `/dev/fuse`.
    fn intakes(&self, mounts: &[Mounted], threads: usize) -> io::Result<Vec<Arc<Intake>>>;

    /// The most threads of a pool.
    fn most(&self) -> usize;

    /// The store's disk as such a thread accesses it.
    fn disk(&self, disk: FileDisk) -> Box<dyn Disk>;

    /// Lets time pass for the thread that calls.
    fn pause(&self) -> fn(Duration);
}
