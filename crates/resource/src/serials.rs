//! Allocation of serials: slots in turn, and generations of each slot in ascending order.
//!
//! No serial is issued twice under one address space number, whichever process or resource ends.
//! Generations up to a *limit* are claimed before use by the registry of numbers ([`Claim`]), and
//! the next address space with that number starts above the limit. A slot that reaches the limit
//! rests. When enough slots rest, more generations are claimed and the slots become usable again. A
//! slot whose generation would wrap is retired permanently.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::id::{GENERATIONS, SLOTS, Serial};

/// Number of generations per claim. Small, because most processes need no more, and unused
/// generations are lost to the number's next owner.
pub const CLAIMED_AT_ONCE: u32 = 1 << 7;
/// Number of resting slots at which more generations are claimed. A claim costs a system call.
const RESTING: usize = 1 << 12;

/// Records that all generations below the argument may be used, so that no later owner of the
/// number uses them. Returns false if the record failed.
pub type Claim = Box<dyn Fn(u32) -> bool + Send + Sync>;

/// Generations that one address space may use, for all kinds.
pub struct Generations {
    first: u32,
    limit: AtomicU32,
    claim: Claim,
    claiming: Mutex<()>,
}

impl std::fmt::Debug for Generations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{}", self.first, self.limit.load(Ordering::Relaxed))
    }
}

impl Generations {
    /// Creates generations from `first` on. The caller has already claimed those up to `first +
    /// CLAIMED_AT_ONCE`.
    ///
    /// # Panics
    /// If `first + CLAIMED_AT_ONCE` exceeds [`GENERATIONS`].
    #[must_use]
    pub fn new(first: u32, claim: Claim) -> Generations {
        let limit = first + CLAIMED_AT_ONCE;
        assert!(limit <= GENERATIONS);
        Generations { first, limit: AtomicU32::new(limit), claim, claiming: Mutex::new(()) }
    }

    /// Creates generations from 0 on whose claims always succeed, for an address space that other
    /// processes cannot find.
    #[must_use]
    pub fn unclaimed() -> Generations {
        Generations::new(0, Box::new(|_| true))
    }

    #[inline]
    fn allows(&self, generation: u32) -> bool {
        // Relaxed: a stale limit only makes a slot rest.
        generation < self.limit.load(Ordering::Relaxed)
    }

    /// Claims more generations, unless another thread has done so. Returns false if there are no
    /// more.
    fn extend(&self, beyond: u32) -> bool {
        let _one = self.claiming.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.limit.load(Ordering::Relaxed);
        if limit > beyond {
            return true;
        }
        let more = limit + CLAIMED_AT_ONCE;
        if more > GENERATIONS || !(self.claim)(more) {
            return false;
        }
        self.limit.store(more, Ordering::Relaxed);
        true
    }
}

/// Serials of one kind.
#[derive(Debug, Default)]
pub struct Serials {
    /// Number of slots that were ever used.
    used: AtomicU32,
    /// The next serial of each slot that has reached the limit.
    resting: Mutex<VecDeque<Serial>>,
}

impl Serials {
    /// Creates an allocator that has issued no serial.
    #[must_use]
    pub const fn new() -> Serials {
        Serials { used: AtomicU32::new(0), resting: Mutex::new(VecDeque::new()) }
    }

    /// Returns the number of slots that were ever used, which is the length of the table.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Acquire).min(SLOTS)
    }

    /// Returns a serial in an unused slot, or in a resting slot. `None` if all slots are in use or
    /// retired.
    #[must_use]
    pub fn first(&self, of: &Generations) -> Option<Serial> {
        let more = |n: u32| (n < SLOTS).then_some(n + 1);
        match self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more) {
            Ok(slot) => Some(Serial::new(slot, of.first)),
            Err(_) => self.rested(of),
        }
    }

    /// Returns the next serial of the slot of `ended`, or a serial of another slot if the
    /// generations of that slot are used up. `None` as for [`first`](Serials::first).
    #[inline]
    #[must_use]
    pub fn next(&self, ended: Serial, of: &Generations) -> Option<Serial> {
        let generation = ended.generation() + 1;
        if of.allows(generation) {
            Some(Serial::from_bits(ended.bits() + 1))
        } else {
            self.elsewhere(ended, of)
        }
    }

    #[cold]
    fn elsewhere(&self, ended: Serial, of: &Generations) -> Option<Serial> {
        let enough = {
            let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
            // A generation that would wrap is not stored: the slot is retired.
            if ended.generation() + 1 < GENERATIONS {
                resting.push_back(Serial::from_bits(ended.bits() + 1));
            }
            resting.len() >= RESTING
        };
        if enough { self.rested(of).or_else(|| self.first(of)) } else { self.first(of) }
    }

    /// Returns the serial of the slot that has rested longest, claiming more generations if
    /// necessary.
    fn rested(&self, of: &Generations) -> Option<Serial> {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        let next = *resting.front()?;
        if of.allows(next.generation()) || of.extend(next.generation()) {
            resting.pop_front()
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::*;

    /// Uses one slot repeatedly, as a LIFO pool does.
    #[test]
    fn no_serial_is_issued_twice() {
        let (serials, of) = (Serials::new(), Generations::unclaimed());
        let mut seen = HashSet::new();
        let mut now = serials.first(&of).unwrap();
        for _ in 0..100_000 {
            assert!(seen.insert(now));
            now = serials.next(now, &of).unwrap();
        }
        assert!(
            serials.used() < 1_000,
            "a slot is left when its generations are used up, and not before: {}",
            serials.used()
        );
    }

    #[test]
    fn generations_are_claimed_before_use() {
        let noted = Arc::new(AtomicU32::new(5 + CLAIMED_AT_ONCE));
        let note = noted.clone();
        let of = Generations::new(
            5,
            Box::new(move |limit| {
                note.store(limit, Ordering::Relaxed);
                true
            }),
        );
        let serials = Serials::new();
        // Slots rest until there are enough of them; then generations are claimed.
        let mut now = serials.first(&of).unwrap();
        for _ in 0..RESTING + 2 {
            now = serials
                .next(Serial::new(now.slot(), of.limit.load(Ordering::Relaxed) - 1), &of)
                .unwrap();
            assert!(
                now.generation() >= 5 && now.generation() < noted.load(Ordering::Relaxed),
                "{now}"
            );
        }
        assert_eq!(noted.load(Ordering::Relaxed), 5 + 2 * CLAIMED_AT_ONCE);
        assert_eq!(
            now.generation(),
            5 + CLAIMED_AT_ONCE,
            "a slot that rested goes on where it stopped: {now}"
        );
    }

    #[test]
    fn failed_claims_exhaust_the_slots() {
        let of = Generations::new(0, Box::new(|_| false));
        let serials = Serials::new();
        let last = |slot| Serial::new(slot, CLAIMED_AT_ONCE - 1);
        let mut slots = 0;
        let mut now = serials.first(&of);
        while let Some(serial) = now {
            assert!(serial.generation() < CLAIMED_AT_ONCE);
            slots += 1;
            now = serials.next(last(serial.slot()), &of);
        }
        assert_eq!(slots, SLOTS);
        assert_eq!(serials.used(), SLOTS);
    }

    #[test]
    fn slot_whose_generation_would_wrap_is_retired() {
        let of = Generations::new(GENERATIONS - CLAIMED_AT_ONCE, Box::new(|_| true));
        let serials = Serials::new();
        let first = serials.first(&of).unwrap();
        let after = serials.next(Serial::new(first.slot(), GENERATIONS - 1), &of).unwrap();
        assert_ne!(after.slot(), first.slot());
        assert!(serials.resting.lock().unwrap().is_empty());
    }
}
