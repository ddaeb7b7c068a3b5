//! The management table of a kind whose resources are values: which slots are free, and what is in
//! the others.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::chunks::Chunks;
use crate::id::Serial;
use crate::locking::Locking;
use crate::serials::{Generations, Serials};

/// Free slots that one virtual processor keeps for itself; half of them go to the others when there
/// are more.
const KEPT: usize = 64;
/// New slots that a virtual processor takes at a time.
const AT_ONCE: usize = 16;
/// Parts of what a kind has in common, where each virtual processor has its own.
const PARTS: usize = 64;

/// Why there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No resource has that serial: its resource has ended, or there never was one.
    Stale,
    /// All slots are in use, or retired.
    Full,
}

/// One place. Its lock is the resource's own: `id`, and what `vp` calls a claim. Line by line, as
/// [`Part`]: a virtual processor that has worn a place out goes on to the next one that nobody had,
/// which lies beside another one's (two cores on one line: 25 ns became 65).
#[repr(align(128))]
struct Slot<T>(Mutex<Option<(Serial, T)>>);

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot(Mutex::new(None))
    }
}

/// Line by line, so that two virtual processors do not share any.
#[repr(align(128))]
#[derive(Default)]
struct Part {
    free: Mutex<Vec<Serial>>,
    /// Opened less closed here; only the sum over all parts means something.
    living: AtomicU64,
}

/// The table.
pub struct Slots<T> {
    serials: Serials,
    places: Chunks<Slot<T>>,
    /// One, or one for each virtual processor, which others take from only if there is nothing
    /// else.
    parts: OnceLock<Box<[Part]>>,
}

impl<T> fmt::Debug for Slots<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("living", &self.living()).finish_non_exhaustive()
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots::new()
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Slots<T> {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Slots<T> {
        Slots { serials: Serials::new(), places: Chunks::new(), parts: OnceLock::new() }
    }

    fn part(&self, design: Locking, here: usize) -> &Part {
        let parts = self.parts.get_or_init(|| {
            let n = if design.is_by_kind() { 1 } else { PARTS };
            (0..n).map(|_| Part::default()).collect()
        });
        &parts[here % parts.len()]
    }

    /// Puts `value` into a free slot. `here`: the caller's virtual processor, or any number.
    ///
    /// # Errors
    /// The value comes back if the table is full.
    pub fn open(
        &self,
        design: Locking,
        of: &Generations,
        here: usize,
        value: T,
    ) -> Result<Serial, T> {
        let part = self.part(design, here);
        let free = self.free(&mut held(&part.free), of);
        let Some(serial) = free.or_else(|| self.others_have()) else {
            return Err(value);
        };
        let former = held(&self.places.make(serial.slot()).0).replace((serial, value));
        debug_assert!(former.is_none());
        part.living.fetch_add(1, Ordering::Relaxed);
        Ok(serial)
    }

    /// New ones come several at a time, so that those of two virtual processors seldom share a
    /// line.
    fn free(&self, free: &mut Vec<Serial>, of: &Generations) -> Option<Serial> {
        if free.is_empty() {
            free.extend((0..AT_ONCE).map_while(|_| self.serials.first(of)));
            free.reverse();
        }
        free.pop()
    }

    /// A free slot of another virtual processor: there are no new ones any more.
    #[cold]
    fn others_have(&self) -> Option<Serial> {
        self.parts.get()?.iter().find_map(|part| held(&part.free).pop())
    }

    /// Takes the resource out: its serial is stale from now on.
    ///
    /// # Errors
    /// [`Missing::Stale`].
    pub fn close(
        &self,
        design: Locking,
        of: &Generations,
        here: usize,
        serial: Serial,
    ) -> Result<T, Missing> {
        let slot = &self.places.get(serial.slot()).ok_or(Missing::Stale)?.0;
        let value = {
            let mut slot = held(slot);
            match slot.take() {
                Some((now, value)) if now == serial => value,
                other => {
                    *slot = other;
                    return Err(Missing::Stale);
                }
            }
        };
        let part = self.part(design, here);
        part.living.fetch_sub(1, Ordering::Relaxed);
        if let Some(next) = self.serials.next(serial, of) {
            let mut free = held(&part.free);
            free.push(next);
            if free.len() > KEPT && !design.is_by_kind() {
                let surplus = free.split_off(KEPT / 2);
                drop(free);
                self.give(surplus);
            }
        }
        Ok(value)
    }

    /// Where a virtual processor closes what others open, its free slots would be lost to them.
    #[cold]
    fn give(&self, surplus: Vec<Serial>) {
        let Some(parts) = self.parts.get() else { return };
        let poorest = parts.iter().min_by_key(|part| held(&part.free).len());
        if let Some(part) = poorest {
            held(&part.free).extend(surplus);
        }
    }

    /// What `f` says of the resource, which nobody else uses meanwhile.
    ///
    /// # Errors
    /// [`Missing::Stale`].
    pub fn with<R>(&self, serial: Serial, f: impl FnOnce(&mut T) -> R) -> Result<R, Missing> {
        let mut slot = held(&self.places.get(serial.slot()).ok_or(Missing::Stale)?.0);
        match &mut *slot {
            Some((now, value)) if *now == serial => Ok(f(value)),
            _ => Err(Missing::Stale),
        }
    }

    /// Visits each resource; those that come and go meanwhile, perhaps.
    pub fn for_each(&self, mut f: impl FnMut(Serial, &mut T)) {
        for slot in (0..self.serials.used()).filter_map(|n| self.places.get(n)) {
            if let Some((serial, value)) = &mut *held(&slot.0) {
                f(*serial, value);
            }
        }
    }

    /// How many there are.
    #[must_use]
    pub fn living(&self) -> u64 {
        let parts = self.parts.get().map_or(&[][..], |parts| parts);
        parts.iter().fold(0, |sum: u64, part| sum.wrapping_add(part.living.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::id::SLOTS;
    use crate::serials::CLAIMED_AT_ONCE;

    #[test]
    fn a_full_table_gives_the_value_back_and_goes_on_when_one_ends() {
        for design in Locking::ALL {
            let (slots, of) = (Slots::new(), Generations::unclaimed());
            let all: Vec<_> =
                (0..SLOTS).map(|n| slots.open(design, &of, n as usize, n).unwrap()).collect();
            assert_eq!(slots.open(design, &of, 0, 7), Err(7));
            assert_eq!(slots.close(design, &of, 1, all[5]), Ok(5));
            // Freed on one virtual processor, wanted on another.
            let again = slots.open(design, &of, 2, 8).unwrap();
            assert_eq!(
                (again.slot(), again.generation()),
                (all[5].slot(), all[5].generation() + 1)
            );
            assert_eq!(slots.with(all[5], |_| ()), Err(Missing::Stale));
            assert_eq!(slots.close(design, &of, 1, all[5]), Err(Missing::Stale));
            assert_eq!(slots.with(again, |n| *n), Ok(8));
            assert_eq!(slots.living(), u64::from(SLOTS));
        }
    }

    #[test]
    fn forged_serials_find_nothing() {
        let (slots, of) = (Slots::new(), Generations::unclaimed());
        let one = slots.open(Locking::Vp, &of, 0, ()).unwrap();
        for forged in [
            Serial::new(one.slot(), one.generation() + 1),
            Serial::new(1, 0),
            Serial::new(SLOTS - 1, 3),
        ] {
            assert_eq!(slots.with(forged, |()| ()), Err(Missing::Stale), "{forged}");
            assert_eq!(slots.close(Locking::Vp, &of, 0, forged), Err(Missing::Stale), "{forged}");
        }
        assert_eq!(slots.close(Locking::Vp, &of, 0, one), Ok(()));
    }

    proptest! {
        /// Against a set; with generations that run out every few lives.
        #[test]
        fn every_design_is_the_same_table(steps in prop::collection::vec((any::<bool>(), 0usize..40, 0usize..3), 0..400)) {
            for design in Locking::ALL {
                let of = Generations::new(crate::id::GENERATIONS - CLAIMED_AT_ONCE, Box::new(|_| false));
                let (slots, mut living, mut seen) = (Slots::new(), Vec::new(), HashSet::new());
                for (n, (opens, which, here)) in steps.iter().enumerate() {
                    if *opens || living.is_empty() {
                        let serial = slots.open(design, &of, *here, n).unwrap();
                        prop_assert!(seen.insert(serial), "{} came twice", serial);
                        living.push((serial, n));
                    } else {
                        let (serial, value) = living.swap_remove(which % living.len());
                        prop_assert_eq!(slots.close(design, &of, *here, serial), Ok(value));
                    }
                    prop_assert_eq!(slots.living(), living.len() as u64);
                }
                let mut all = Vec::new();
                slots.for_each(|serial, value| all.push((serial, *value)));
                all.sort();
                living.sort();
                prop_assert_eq!(all, living);
            }
        }
    }

    /// Several open and close at once, each others' too.
    #[test]
    fn nothing_is_lost_or_doubled_among_several() {
        for design in Locking::ALL {
            let (slots, of) = (Slots::new(), Generations::unclaimed());
            let (sender, receiver) = std::sync::mpsc::sync_channel::<(Serial, u64)>(32);
            let receiver = Mutex::new(receiver);
            std::thread::scope(|scope| {
                for here in 0..2 {
                    let (slots, of, sender) = (&slots, &of, sender.clone());
                    scope.spawn(move || {
                        for n in 0..20_000u64 {
                            let value = n * 2 + here as u64;
                            sender
                                .send((slots.open(design, of, here, value).unwrap(), value))
                                .unwrap();
                        }
                    });
                }
                drop(sender);
                for here in 2..4 {
                    let (slots, of, receiver) = (&slots, &of, &receiver);
                    scope.spawn(move || {
                        loop {
                            let next = held(receiver).recv();
                            let Ok((serial, value)) = next else { break };
                            assert_eq!(slots.close(design, of, here, serial), Ok(value));
                        }
                    });
                }
            });
            assert_eq!(slots.living(), 0);
            assert!(
                slots.serials.used() < 10_000,
                "free slots come back to those that open: {}",
                slots.serials.used()
            );
        }
    }
}
