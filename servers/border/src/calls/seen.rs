//! Calls that have come: none is performed twice.
//!
//! The id of a call has two halves: a random number of the calling border's process, and a count
//! from 0. Calls overtake each other, but not by many, so that a window below the highest count is
//! enough. What is below the window counts as seen.

use std::collections::{HashMap, VecDeque};

use crate::tls::identity::Location;

/// Width of the window in calls.
const WINDOW: u64 = 1 << 16;
/// Number of border processes of one machine whose calls are remembered. A machine has one at a
/// time.
const MOST_BORDERS: usize = 16;
/// Bits of a word.
const BITS: u64 = 64;

/// The calls of all borders.
#[derive(Default)]
pub(super) struct Seen {
    machines: HashMap<Location, Machine>,
}

/// The calls of one machine, whose border processes it does not take from others.
#[derive(Default)]
struct Machine {
    windows: HashMap<u64, Window>,
    /// The border processes in the order of their first calls.
    order: VecDeque<u64>,
}

/// The calls of one border process.
struct Window {
    /// One above the highest count.
    end: u64,
    /// One bit for each of the last counts, at the count modulo the width.
    bits: Vec<u64>,
}

impl Seen {
    /// Remembers a call. Returns false if it was seen before.
    pub(super) fn is_first(&mut self, from: Location, id: u128) -> bool {
        self.machines.entry(from).or_default().is_first((id >> 64) as u64, id as u64)
    }
}

impl Machine {
    fn is_first(&mut self, border: u64, count: u64) -> bool {
        if !self.windows.contains_key(&border) {
            if self.order.len() >= MOST_BORDERS
                && let Some(oldest) = self.order.pop_front()
            {
                self.windows.remove(&oldest);
            }
            self.order.push_back(border);
        }
        self.windows.entry(border).or_insert_with(Window::new).is_first(count)
    }
}

impl Window {
    fn new() -> Window {
        Window { end: 0, bits: vec![0; (WINDOW / BITS) as usize] }
    }

    fn is_first(&mut self, count: u64) -> bool {
        if count.saturating_add(WINDOW) < self.end {
            return false;
        }
        if count >= self.end {
            let skipped = (count - self.end).min(WINDOW);
            for old in self.end..self.end + skipped {
                *self.word(old).0 &= !self.word(old).1;
            }
            let (word, bit) = self.word(count);
            *word |= bit;
            self.end = count.saturating_add(1);
            return true;
        }
        let (word, bit) = self.word(count);
        let is_first = *word & bit == 0;
        *word |= bit;
        is_first
    }

    fn word(&mut self, count: u64) -> (&mut u64, u64) {
        let at = count % WINDOW;
        (&mut self.bits[(at / BITS) as usize], 1 << (at % BITS))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn calls_of_one_machine_do_not_make_those_of_another_forgotten() {
        let [one, other] = [Location([1; 16]), Location([2; 16])];
        let mut seen = Seen::default();
        let id = |border: u128| border << 64 | 7;
        assert!(seen.is_first(one, id(0)));
        for border in 0..10 * MOST_BORDERS as u128 {
            assert!(seen.is_first(other, id(border)));
        }
        assert!(!seen.is_first(one, id(0)));
        // Its own oldest ones are forgotten.
        assert!(seen.is_first(other, id(0)));
        assert_eq!(seen.machines[&other].windows.len(), MOST_BORDERS);
    }

    #[test]
    fn counts_below_the_window_count_as_seen() {
        let mut window = Window::new();
        assert!(window.is_first(10) && !window.is_first(10) && window.is_first(9));
        assert!(window.is_first(10 + 3 * WINDOW));
        assert!(!window.is_first(11));
        assert!(window.is_first(10 + 3 * WINDOW - 1));
        assert!(window.is_first(u64::MAX - 1) && !window.is_first(u64::MAX - 1));
    }

    proptest! {
        #[test]
        fn no_count_is_first_twice(counts in proptest::collection::vec(0..200_000_u64, 0..500)) {
            let (mut window, mut seen) = (Window::new(), HashSet::new());
            for count in counts {
                let is_first = window.is_first(count);
                prop_assert!(!is_first || seen.insert(count));
            }
        }
    }
}
