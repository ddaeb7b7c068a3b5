//! Which serials come next: slots in turn, and in each one life after the other.
//!
//! No serial is ever given twice under one number of an address space, whatever ends: the
//! generations up to a *limit* are claimed before any of them is used, by the keeper of the number
//! ([`Claim`]), and the next address space with that number begins above. A slot that reaches the
//! limit rests; when enough of them do, more generations are claimed and they go on. One whose
//! generation would wrap is retired for good.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::id::{GENERATIONS, SLOTS, Serial};

/// How many generations are claimed at once. Few, since most processes need no more, and what they
/// do not use is lost to the number's next one.
pub const CLAIMED_AT_ONCE: u32 = 1 << 7;
/// So many slots rest before generations are claimed for them: that costs a system call.
const RESTING: usize = 1 << 12;

/// Notes that all generations below the given one may be used, so that no successor uses them.
/// False: it could not be noted.
pub type Claim = Box<dyn Fn(u32) -> bool + Send + Sync>;

/// The generations that one address space may use, for all kinds.
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
    /// From `first` on; up to `first + CLAIMED_AT_ONCE` is claimed already.
    ///
    /// # Panics
    /// If that is beyond the last one.
    #[must_use]
    pub fn new(first: u32, claim: Claim) -> Generations {
        let limit = first + CLAIMED_AT_ONCE;
        assert!(limit <= GENERATIONS);
        Generations { first, limit: AtomicU32::new(limit), claim, claiming: Mutex::new(()) }
    }

    /// All of them, for an address space that nobody else can find.
    #[must_use]
    pub fn unclaimed() -> Generations {
        Generations::new(0, Box::new(|_| true))
    }

    #[inline]
    fn allows(&self, generation: u32) -> bool {
        // Relaxed: a limit read late only makes a slot rest.
        generation < self.limit.load(Ordering::Relaxed)
    }

    /// Claims more, unless somebody has meanwhile. False where there are no more.
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

/// The serials of one kind.
#[derive(Debug, Default)]
pub struct Serials {
    /// How many slots were ever used.
    used: AtomicU32,
    /// What would be next in each slot that has reached the limit.
    resting: Mutex<VecDeque<Serial>>,
}

impl Serials {
    /// All of them.
    #[must_use]
    pub const fn new() -> Serials {
        Serials { used: AtomicU32::new(0), resting: Mutex::new(VecDeque::new()) }
    }

    /// How many slots were ever used: the table's length.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Acquire).min(SLOTS)
    }

    /// One for a resource that has no slot yet. `None`: all are in use, or retired.
    #[must_use]
    pub fn first(&self, of: &Generations) -> Option<Serial> {
        let more = |n: u32| (n < SLOTS).then_some(n + 1);
        match self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more) {
            Ok(slot) => Some(Serial::new(slot, of.first)),
            Err(_) => self.rested(of),
        }
    }

    /// One for the next resource in the slot of one that ended; in another slot if that one's
    /// generations are used up. `None` as for [`first`](Serials::first).
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
            // One that would wrap never comes back.
            if ended.generation() + 1 < GENERATIONS {
                resting.push_back(Serial::from_bits(ended.bits() + 1));
            }
            resting.len() >= RESTING
        };
        if enough { self.rested(of).or_else(|| self.first(of)) } else { self.first(of) }
    }

    /// The one that has rested for longest, with more generations if need be.
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

    /// As a LIFO pool does: one slot is used all the time.
    #[test]
    fn no_serial_comes_twice() {
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
    fn what_is_used_was_claimed_before() {
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
    fn where_nothing_can_be_noted_other_slots_serve_until_there_are_none() {
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
    fn one_that_would_wrap_is_retired() {
        let of = Generations::new(GENERATIONS - CLAIMED_AT_ONCE, Box::new(|_| true));
        let serials = Serials::new();
        let first = serials.first(&of).unwrap();
        let after = serials.next(Serial::new(first.slot(), GENERATIONS - 1), &of).unwrap();
        assert_ne!(after.slot(), first.slot());
        assert!(serials.resting.lock().unwrap().is_empty());
    }
}
