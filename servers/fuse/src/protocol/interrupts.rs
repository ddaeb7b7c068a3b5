//! Requests that no process waits for any more: the asking one was killed, or got a signal.

use std::collections::VecDeque;

use kumihimo::sync::atomic::{AtomicUsize, Ordering};
use kumihimo::sync::{Mutex, PoisonError};
use kumihimo_store::{Errno, Result};

/// More are not remembered: a request whose interruption is forgotten is answered in full.
const MOST: usize = 1024;

/// The numbers of requests that were interrupted and not yet answered.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    /// How many there are, so that a look needs no lock: seldom any. Relaxed: an interruption that
    /// is seen late is one that came late.
    count: AtomicUsize,
    numbers: Mutex<VecDeque<u64>>,
}

impl Interrupts {
    /// That request was interrupted. It may have been answered meanwhile: then its number, which
    /// never comes again, is pushed out by later ones.
    pub(crate) fn note(&self, unique: u64) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if numbers.len() == MOST {
            numbers.pop_front();
        }
        numbers.push_back(unique);
        self.count.store(numbers.len(), Ordering::Relaxed);
    }

    /// `EINTR` if that request was interrupted: asked between the parts of one that takes a while.
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
