//! The timers of all sleeping futures, in the order of their deadlines.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Instant;

/// A deadline, and the unique number of its future.
pub(crate) type Key = (Instant, u64);

pub(crate) fn unique_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The wakers of futures that sleep. A removed waker is dropped or called after the lock is
/// released.
#[derive(Debug, Default)]
pub(crate) struct Timers(BTreeMap<Key, Waker>);

impl Timers {
    pub(crate) const fn new() -> Timers {
        Timers(BTreeMap::new())
    }

    /// Enters a timer. Returns the former waker of the same key.
    pub(crate) fn enter(&mut self, key: Key, waker: Waker) -> Option<Waker> {
        self.0.insert(key, waker)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Waker> {
        self.0.remove(&key)
    }

    /// When the first timer is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.first_key_value().map(|((at, _), _)| *at)
    }

    /// Moves up to `limit` wakers that are due at `now` to `due`.
    pub(crate) fn take_due(&mut self, now: Instant, limit: usize, due: &mut Vec<Waker>) {
        while due.len() < limit
            && let Some(first) = self.0.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
    }
}
