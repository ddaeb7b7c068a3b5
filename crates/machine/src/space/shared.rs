//! What the control kernel thread and its handle share, and its limits.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::number::Number;
use crate::descriptors::Kept;

/// What the control kernel thread and its handle share.
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

    /// Whether that user may ask; counts the refused ones.
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

/// How much the control socket bears.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// So many connections at once; for one more, the one that has been idle for longest is closed.
    /// At most 64.
    pub connections: usize,
    /// One that asks nothing for so long is closed, and one that does not take an answer within it.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 64, patience: Duration::from_secs(10) }
    }
}
