//! Park word: whether a virtual processor that runs nothing has no kernel thread.
//!
//! A VP without a kernel thread costs the kernel nothing, but only its owner may decide to part
//! from it, and another thread may have work for the VP at the same moment. The word makes exactly
//! one thread request the next carrier:
//!
//! ```text
//!   CARRIED ── begin ──> LEAVING ── commit ──> PARKED ── request (true) ──> CARRIED
//!      ^                  │    │
//!      ├──── cancel ──────┘    └─ request (false) ──> WANTED
//!      └──── cancel, commit (false) ───────────────────┘
//! ```
//! The owner begins, looks for work once more, releases the VP and commits. A thread with work for
//! the VP stores that work, passes a full fence, and requests. Either the owner finds the work, or
//! the request finds that the owner leaves or has left.

use crate::loom::atomic::{AtomicU32, Ordering, fence};

/// A kernel thread carries the VP, or one was requested.
const CARRIED: u32 = 0;
/// The owner is about to release the VP.
const LEAVING: u32 = 1;
/// The VP has no carrier, and none was requested.
const PARKED: u32 = 2;
/// A carrier was requested while the owner was leaving. The owner requests it when it has left.
const WANTED: u32 = 3;

/// The park word of one VP.
#[derive(Debug)]
pub struct ParkWord(AtomicU32);

impl ParkWord {
    /// Creates the word of a VP that is parked, or that is or will be carried.
    #[must_use]
    pub fn new(is_parked: bool) -> ParkWord {
        ParkWord(AtomicU32::new(if is_parked { PARKED } else { CARRIED }))
    }

    /// Announces that the owner is about to release the VP. It must look for work once more
    /// afterwards.
    pub fn begin(&self) {
        self.0.store(LEAVING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Reverts [`begin`](ParkWord::begin). The owner keeps the VP, and looks for work before it
    /// sleeps.
    pub fn cancel(&self) {
        self.0.swap(CARRIED, Ordering::AcqRel);
    }

    /// Ends [`begin`](ParkWord::begin), after the owner has released the VP. Returns false if a
    /// carrier was requested meanwhile: the caller then requests it.
    #[must_use]
    pub fn commit(&self) -> bool {
        // Release: the next carrier sees the VP's contents.
        let parked =
            self.0.compare_exchange(LEAVING, PARKED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !parked {
            self.0.store(CARRIED, Ordering::Relaxed);
        }
        parked
    }

    /// Requests a carrier, after the caller has stored work for the VP and passed a full fence.
    /// Returns whether the caller must give the VP to a kernel thread. Async-signal-safe.
    #[must_use]
    pub fn request(&self) -> bool {
        let claim =
            |from, to| self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        match self.0.load(Ordering::Relaxed) {
            // After a failure the owner has committed, or has seen the work.
            LEAVING => claim(LEAVING, WANTED) == Err(PARKED) && claim(PARKED, CARRIED).is_ok(),
            PARKED => claim(PARKED, CARRIED).is_ok(),
            _ => false,
        }
    }

    /// Returns whether the VP has no carrier and needs none. The result may be out of date.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PARKED
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, loom))]
mod tests {
    mod loom;
}
