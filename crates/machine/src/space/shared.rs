//! State shared by the control kernel thread and its handle, and the limits of the socket.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::number::Number;
use crate::socket::descriptors::Kept;

/// State shared by the control kernel thread and its handle.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) number: Arc<Number>,
    pub(crate) stop: Kept,
    pub(super) allowed: Mutex<Vec<u32>>,
    pub(crate) refused: AtomicU64,
}

impl Shared {
    pub(crate) fn keep(&self, fd: OwnedFd) -> Kept {
        self.number.directory.keep(fd)
    }

    pub(crate) fn location(&self) -> u16 {
        self.number.number
    }

    pub(crate) fn owner(&self) -> u32 {
        self.number.directory.owner()
    }

    /// Returns whether the user may make requests; counts refusals.
    pub(crate) fn admits(&self, uid: u32) -> bool {
        let admits = uid == self.owner() || uid == 0 || self.allowed().contains(&uid);
        if !admits {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admits
    }

    pub(super) fn allowed(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Limits of the control socket.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of connections at once, at most 64. For a further one, the connection that has been
    /// idle for the longest time is closed.
    pub connections: usize,
    /// Time after which a connection is closed if it makes no request, or does not read an answer.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 64, patience: Duration::from_secs(10) }
    }
}
