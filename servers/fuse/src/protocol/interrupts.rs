//! Requests that were interrupted because the calling process was killed or received a signal.

use std::collections::VecDeque;

use kumihimo::sync::atomic::{AtomicUsize, Ordering};
use kumihimo::sync::{Mutex, PoisonError};
use kumihimo_store::{Errno, Result};

/// Maximum number of recorded interruptions. A request whose record was displaced is handled
/// completely.
const MOST: usize = 1024;

/// Numbers of requests that were interrupted and have no reply yet.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    /// Number of entries, so that a check without entries, the usual case, needs no lock. Relaxed:
    /// an interruption that becomes visible late is equivalent to one that arrived late.
    count: AtomicUsize,
    numbers: Mutex<VecDeque<u64>>,
}

impl Interrupts {
    /// Records an interruption. The request may already have been answered; its number is never
    /// reused, and later entries displace it.
    pub(crate) fn note(&self, unique: u64) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if numbers.len() == MOST {
            numbers.pop_front();
        }
        numbers.push_back(unique);
        self.count.store(numbers.len(), Ordering::Relaxed);
    }

    /// Returns `EINTR` if the request was interrupted. Long operations call this between their
    /// parts.
    pub(crate) fn check(&self, unique: u64) -> Result<()> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = numbers.iter().position(|number| *number == unique) else { return Ok(()) };
        numbers.remove(at);
        self.count.store(numbers.len(), Ordering::Relaxed);
        Err(Errno::INTR)
    }
}

#[cfg(test)]
mod tests;
