//! Management table of a kind whose resources are values: the free slots and the values in the used
//! slots.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::chunks::Chunks;
use crate::id::Serial;
use crate::locking::Locking;
use crate::serials::{Generations, Serials};

/// Maximum number of free slots per VP. Above it, half of them go to another VP.
const KEPT: usize = 64;
/// Number of new slots that a VP takes at a time.
const AT_ONCE: usize = 16;
/// Number of partitions of a kind's free slots and counters, if they are partitioned by VP.
const PARTS: usize = 64;

/// Why a table returned no resource.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Missing, Serial, Slots};
///
/// let words = Slots::<String>::new();
/// let result = words.with(Serial::new(0, 0), |word| word.len());
/// assert_eq!(result, Err(Missing::Stale));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// No resource has that serial: the resource has ended, or never existed.
    Stale,
    /// All slots are in use or retired.
    Full,
}

/// A slot, whose mutex is the resource's own lock: the lock of design `id`, and the claim of design
/// `vp`. Aligned to two cache lines, as [`Part`]. Neighbouring slots belong to different VPs once a
/// VP has used up the generations of its first slots. With two cores on one line, 25 ns became 65
/// ns.
#[repr(align(128))]
struct Slot<T>(Mutex<Option<(Serial, T)>>);

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot(Mutex::new(None))
    }
}

/// Aligned to two cache lines, so that two VPs share none.
#[repr(align(128))]
#[derive(Default)]
struct Part {
    free: Mutex<Vec<Serial>>,
    /// Opened minus closed resources in this partition; only the sum over all partitions is
    /// meaningful.
    living: AtomicU64,
}

/// The table.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Missing, Slots, table};
///
/// let (words, design, of) = (Slots::new(), table().locking(), table().generations());
/// let serial = words.open(design, of, 0, "first".to_owned()).expect("room");
/// assert_eq!(words.with(serial, |word| word.len()), Ok(5));
/// assert_eq!(words.close(design, of, 0, serial).as_deref(), Ok("first"));
/// assert_eq!(words.with(serial, |word| word.len()), Err(Missing::Stale));
/// ```
pub struct Slots<T> {
    serials: Serials,
    places: Chunks<Slot<T>>,
    /// One partition, or one for each VP. A VP takes from another VP's partition only if there is
    /// no other free slot.
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
    /// Creates an empty table.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Slots;
    ///
    /// static WORDS: Slots<String> = Slots::new();
    /// assert_eq!(WORDS.living(), 0);
    /// ```
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

    /// Stores `value` in a free slot. `here` is the caller's VP, or any number.
    ///
    /// # Errors
    /// Returns the value if the table is full.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Slots, table};
    ///
    /// let numbers = Slots::new();
    /// let open = |n| numbers.open(table().locking(), table().generations(), 0, n).expect("room");
    /// let (one, two) = (open(1), open(2));
    /// assert_ne!(one, two);
    /// assert_eq!(numbers.with(two, |n| *n), Ok(2));
    /// ```
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

    /// Takes a free slot. New slots are taken several at a time, so that slots of two VPs seldom
    /// share a cache line.
    fn free(&self, free: &mut Vec<Serial>, of: &Generations) -> Option<Serial> {
        if free.is_empty() {
            free.extend((0..AT_ONCE).map_while(|_| self.serials.first(of)));
            free.reverse();
        }
        free.pop()
    }

    /// Takes a free slot from another VP's partition, when no new slots remain.
    #[cold]
    fn others_have(&self) -> Option<Serial> {
        self.parts.get()?.iter().find_map(|part| held(&part.free).pop())
    }

    /// Removes the resource; its serial becomes stale.
    ///
    /// # Errors
    /// [`Missing::Stale`].
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Missing, Slots, table};
    ///
    /// let (numbers, design, of) = (Slots::new(), table().locking(), table().generations());
    /// let serial = numbers.open(design, of, 0, 7).expect("room");
    /// assert_eq!(numbers.close(design, of, 0, serial), Ok(7));
    /// assert_eq!(numbers.close(design, of, 0, serial), Err(Missing::Stale));
    /// ```
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

    /// Gives surplus free slots to the partition with the fewest. Otherwise the slots would
    /// accumulate at a VP that closes resources that other VPs open.
    #[cold]
    fn give(&self, surplus: Vec<Serial>) {
        let Some(parts) = self.parts.get() else { return };
        let poorest = parts.iter().min_by_key(|part| held(&part.free).len());
        if let Some(part) = poorest {
            held(&part.free).extend(surplus);
        }
    }

    /// Calls `f` with exclusive access to the resource. Returns the result of `f`.
    ///
    /// # Errors
    /// [`Missing::Stale`].
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Slots, table};
    ///
    /// let numbers = Slots::new();
    /// let serial = numbers.open(table().locking(), table().generations(), 0, 7).expect("room");
    /// assert_eq!(numbers.with(serial, |n| std::mem::replace(n, 8)), Ok(7));
    /// assert_eq!(numbers.with(serial, |n| *n), Ok(8));
    /// ```
    pub fn with<R>(&self, serial: Serial, f: impl FnOnce(&mut T) -> R) -> Result<R, Missing> {
        let mut slot = held(&self.places.get(serial.slot()).ok_or(Missing::Stale)?.0);
        match &mut *slot {
            Some((now, value)) if *now == serial => Ok(f(value)),
            _ => Err(Missing::Stale),
        }
    }

    /// Visits each resource. Resources opened or closed during the call may be missed.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Slots, table};
    ///
    /// let numbers = Slots::new();
    /// for n in [1, 2, 3] {
    ///     numbers.open(table().locking(), table().generations(), 0, n).expect("room");
    /// }
    /// let mut sum = 0;
    /// numbers.for_each(|_serial, n| sum += *n);
    /// assert_eq!(sum, 6);
    /// ```
    pub fn for_each(&self, mut f: impl FnMut(Serial, &mut T)) {
        for slot in (0..self.serials.used()).filter_map(|n| self.places.get(n)) {
            if let Some((serial, value)) = &mut *held(&slot.0) {
                f(*serial, value);
            }
        }
    }

    /// Returns the number of open resources.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Slots, table};
    ///
    /// let (numbers, design, of) = (Slots::new(), table().locking(), table().generations());
    /// let serial = numbers.open(design, of, 0, 7).expect("room");
    /// assert_eq!(numbers.living(), 1);
    /// numbers.close(design, of, 0, serial).unwrap();
    /// assert_eq!(numbers.living(), 0);
    /// ```
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
    fn full_table_returns_value_and_reuses_closed_slot() {
        for design in Locking::ALL {
            let (slots, of) = (Slots::new(), Generations::unclaimed());
            let all: Vec<_> =
                (0..SLOTS).map(|n| slots.open(design, &of, n as usize, n).unwrap()).collect();
            assert_eq!(slots.open(design, &of, 0, 7), Err(7));
            assert_eq!(slots.close(design, &of, 1, all[5]), Ok(5));
            // Freed on one VP, then needed on another VP.
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
    fn forged_serials_are_stale() {
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
        /// Compares each design with a set, while generations run out after a few uses.
        #[test]
        fn all_designs_behave_as_one_table(steps in prop::collection::vec((any::<bool>(), 0usize..40, 0usize..3), 0..400)) {
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

    /// Several threads open and close concurrently, including resources that other threads opened.
    #[test]
    fn concurrent_open_and_close_lose_nothing() {
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
                "free slots return to the threads that open: {}",
                slots.serials.used()
            );
        }
    }
}
