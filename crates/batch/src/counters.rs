//! Counters of batches.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of classes of batch sizes: 1, 2, 3-4, 5-8, 9-16, 17-32, 33-64.
pub const BUCKETS: usize = 7;

/// The counters of one user of batches. Written by one thread at a time, the one that runs the
/// batches; read by any thread. Relaxed: they are not ordered with each other.
#[derive(Debug, Default)]
pub struct Counters {
    /// Batches run.
    pub batches: AtomicU64,
    /// Calls in these batches.
    pub calls: AtomicU64,
    /// Kernel entries that these batches took.
    pub entries: AtomicU64,
    /// Calls that became part of another call's system call.
    pub merged: AtomicU64,
    /// Merged calls that were made again, alone, since the merged system call did not reach them.
    pub again: AtomicU64,
    /// Nanoseconds that the first calls of batches waited for their batches to start.
    pub waited_ns: AtomicU64,
    /// Batches by size.
    pub sizes: [AtomicU64; BUCKETS],
}

fn add(counter: &AtomicU64, n: u64) {
    // There is one writer, so no read-modify-write is needed.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn batch(&self, calls: usize) {
        add(&self.batches, 1);
        add(&self.calls, calls as u64);
        if calls > 0 {
            add(
                &self.sizes[((calls - 1).checked_ilog2().map_or(0, |log| log as usize + 1))
                    .min(BUCKETS - 1)],
                1,
            );
        }
    }

    pub(crate) fn entries(&self, n: u64) {
        add(&self.entries, n);
    }

    pub(crate) fn merged(&self, n: usize) {
        if n > 0 {
            add(&self.merged, n as u64);
        }
    }

    pub(crate) fn again(&self) {
        add(&self.again, 1);
    }

    /// Adds the time that the first call of a batch waited for the batch to start.
    pub fn waited(&self, ns: u64) {
        add(&self.waited_ns, ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_sizes_are_counted_in_their_classes() {
        let counters = Counters::default();
        for n in [1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64] {
            counters.batch(n);
        }
        let seen: Vec<_> = counters.sizes.iter().map(|c| c.load(Ordering::Relaxed)).collect();
        assert_eq!(seen, [1, 1, 2, 2, 2, 2, 2]);
        assert_eq!(counters.batches.load(Ordering::Relaxed), 12);
    }
}
