//! Core of a discrete-event simulation: events in the order of their virtual times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Virtual time, in nanoseconds unless a model uses another unit.
pub type Time = u64;

struct Due<E> {
    /// Time, then a random number that orders equal times, then the order of scheduling.
    key: (Time, u64, u64),
    event: E,
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl<E> Eq for Due<E> {}
impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Due<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Queue of future events. On a real machine, events at the same time may happen in any order. Here
/// a random generator decides, so that no processor is favoured by its number, and the same seed
/// gives the same run.
pub struct Engine<E> {
    now: Time,
    scheduled: u64,
    draws: Draws,
    due: BinaryHeap<Reverse<Due<E>>>,
}

impl<E> Engine<E> {
    /// Starts at time 0 without events.
    #[must_use]
    pub fn new(seed: u64) -> Engine<E> {
        Engine { now: 0, scheduled: 0, draws: Draws(seed), due: BinaryHeap::new() }
    }

    /// Time of the last event.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Schedules `event` after `delay`.
    pub fn after(&mut self, delay: Time, event: E) {
        self.scheduled += 1;
        let key = (self.now.saturating_add(delay), self.draws.next(), self.scheduled);
        self.due.push(Reverse(Due { key, event }));
    }

    /// Removes the next event and advances the time to it. `None` if no event is left.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<E> {
        let Reverse(due) = self.due.pop()?;
        self.now = due.key.0;
        Some(due.event)
    }

    /// A pseudo-random number below `n`.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn draw(&mut self, n: usize) -> usize {
        (self.draws.next() % n as u64) as usize
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn run(seed: u64, delays: &[Time]) -> Vec<(Time, usize)> {
        let mut engine = Engine::new(seed);
        for (i, delay) in delays.iter().enumerate() {
            engine.after(*delay, i);
        }
        std::iter::from_fn(|| engine.next().map(|event| (engine.now(), event))).collect()
    }

    proptest! {
        #[test]
        fn events_are_processed_once_in_order_of_time(delays in prop::collection::vec(0u64..50, 0..200), seed: u64) {
            let came = run(seed, &delays);
            prop_assert!(came.is_sorted_by_key(|(time, _)| *time));
            prop_assert!(came.iter().all(|(time, event)| *time == delays[*event]));
            prop_assert_eq!(came.iter().map(|(_, event)| event).collect::<BTreeSet<_>>().len(), delays.len());
            prop_assert_eq!(came, run(seed, &delays));
        }
    }

    #[test]
    fn order_of_equal_times_depends_on_the_seed() {
        let orders: BTreeSet<_> = (0..100).map(|seed| run(seed, &[7, 7, 7])).collect();
        // All six permutations.
        assert_eq!(orders.len(), 6);
    }

    #[test]
    fn scheduled_events_are_processed_later() {
        let mut engine = Engine::new(1);
        engine.after(5, "first");
        assert_eq!(engine.next(), Some("first"));
        engine.after(0, "now");
        engine.after(3, "then");
        assert_eq!((engine.next(), engine.now()), (Some("now"), 5));
        assert_eq!((engine.next(), engine.now()), (Some("then"), 8));
        assert_eq!(engine.next(), None);
    }
}
