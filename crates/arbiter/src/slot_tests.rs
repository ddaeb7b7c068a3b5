//! The protocol of a slot: model-checked with loom, and by itself.

use super::*;
use std::sync::atomic::AtomicU64 as Noted;

/// Rows of one VP each; notes the displaced ones, a bit a row.
struct Rows {
    cells: Vec<Cell>,
    called: Vec<AtomicU64>,
    displaced: Noted,
}

impl Rows {
    fn new(rows: usize) -> Rows {
        Rows {
            cells: (0..rows).map(|_| Cell::new()).collect(),
            called: (0..rows).map(|_| AtomicU64::new(0)).collect(),
            displaced: Noted::new(0),
        }
    }
}

impl Rows {
    fn was_displaced(&self, who: u16) -> bool {
        self.displaced.load(std::sync::atomic::Ordering::Relaxed) & bit(who) != 0
    }
}

impl BoardAccess for Rows {
    fn vps(&self, row: u16) -> u8 {
        u8::from(usize::from(row) < self.cells.len())
    }

    fn cell(&self, place: VpId) -> &Cell {
        &self.cells[usize::from(place.row)]
    }

    fn given(&self, place: VpId) {
        if self.cell(place).claim_wake().is_some() {
            self.called[usize::from(place.row)].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn displaced(&self, place: VpId) {
        self.displaced.fetch_or(bit(place.row), std::sync::atomic::Ordering::Relaxed);
    }
}

fn row(row: u16) -> VpId {
    VpId { row, vp: 0 }
}

#[cfg(not(loom))]
mod plain {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_highest_goes_first_and_equals_take_turns() {
        let (slot, rows) = (Slot::new(), Rows::new(4));
        let core = SlotProtocol { slot: &slot, number: 3, places: &rows };
        assert!(core.enter(row(0), Mark::of(10), true).is_ok());
        assert!(core.enter(row(1), Mark::of(10), true).is_err());
        assert!(core.enter(row(2), Mark::of(10), true).is_err());
        assert!(core.enter(row(3), Mark::SPENT, true).is_err());
        for next in [1, 2, 0, 1] {
            let holder = slot.load().holder().expect("held");
            assert!(core.turn_over(holder, Mark::of(10)));
            assert!(core.enter(holder, Mark::of(10), true).is_err());
            assert_eq!(slot.load().holder(), Some(row(next)));
            assert!(core.enter(row(next), Mark::of(10), true).is_ok());
        }
        assert!(core.enter(row(2), Mark::of(11), true).is_ok());
        assert!(!core.turn_over(row(2), Mark::of(11)), "nobody waits at its level");
        assert!(rows.was_displaced(1));
        core.leave(row(2), true, || ());
        assert_eq!(slot.load().held(), Some((row(0), Mark::of(10))));
        // Row 1 was displaced, and has not asked again.
        core.leave(row(0), true, || ());
        assert_eq!(slot.load().held(), Some((row(3), Mark::SPENT)));
        core.leave(row(3), true, || ());
        assert_eq!(slot.load().holder(), None);
        assert_eq!(slot.waiting[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_that_sinks_gives_the_core_up() {
        let (slot, rows) = (Slot::new(), Rows::new(2));
        let core = SlotProtocol { slot: &slot, number: 0, places: &rows };
        assert!(core.enter(row(0), Mark::of(10), true).is_ok());
        assert!(core.enter(row(1), Mark::of(5), true).is_err());
        assert!(core.enter(row(0), Mark::of(4), true).is_err());
        assert_eq!(slot.load().held(), Some((row(1), Mark::of(5))));
    }

    proptest! {
        /// Whatever stands in a slot and in the cells: no panic, an end, and a VP that enters knows
        /// whether it has the core.
        #[test]
        fn nonsense_is_survived(word: u64, bits: [u64; 4], waits: [u32; 4], level in 0u8..=63) {
            let (slot, rows) = (Slot::new(), Rows::new(4));
            let core = SlotProtocol { slot: &slot, number: 0, places: &rows };
            slot.word.store(word, Ordering::Relaxed);
            slot.waiting.iter().zip(bits).for_each(|(word, bits)| word.store(bits, Ordering::Relaxed));
            rows.cells.iter().zip(waits).for_each(|(cell, waits)| cell.set_waits(waits));
            let entered = core.enter(row(0), Mark::of(level), true).is_ok();
            prop_assert_eq!(entered, slot.load().holder() == Some(row(0)));
            core.evict(slot.load());
            core.leave(row(0), false, || ());
            core.turn_over(row(1), Mark::of(level));
        }

        /// Any sequence of what four address spaces can do: at the end of each step the core's
        /// holder is none lower than any waiter.
        #[test]
        fn the_holder_is_the_highest(steps in proptest::collection::vec((0u16..4, 0u8..5, 0u8..8), 0..200)) {
            let (slot, rows) = (Slot::new(), Rows::new(4));
            let core = SlotProtocol { slot: &slot, number: 0, places: &rows };
            for (who, what, level) in steps {
                match what {
                    0 => core.leave(row(who), true, || ()),
                    1 => { core.turn_over(row(who), slot.load().mark().max(Mark::SPENT)); }
                    2 => { core.evict(slot.load()); }
                    _ => { let _ = core.enter(row(who), Mark::of(level), true); }
                }
                let holder = slot.load();
                for other in (0..4).map(row).filter(|&other| Some(other) != holder.holder()) {
                    let waits = rows.cell(other).waits_for(0);
                    prop_assert!(waits.is_none_or(|waits| waits <= holder.mark()), "{other:?} waits at {waits:?}, held at {:?}", holder.mark());
                }
            }
        }
    }
}

#[cfg(loom)]
mod models {
    use super::*;
    use crate::row::SleepMode;
    use loom::sync::Arc;

    /// What a VP does that wants the core, and lies down if it cannot have it. True: it has it.
    fn wants(core: &SlotProtocol<'_, Rows>, me: VpId, mark: Mark) -> bool {
        if core.enter(me, mark, true).is_ok() {
            return true;
        }
        core.places.cell(me).prepare_sleep(SleepMode::Futex);
        if core.slot.load().holder() == Some(me) {
            core.places.cell(me).finish_sleep();
            return true;
        }
        false
    }

    struct World {
        slot: Slot,
        rows: Rows,
    }

    impl World {
        fn new(rows: usize) -> Arc<World> {
            Arc::new(World { slot: Slot::new(), rows: Rows::new(rows) })
        }

        fn core(&self) -> SlotProtocol<'_, Rows> {
            SlotProtocol { slot: &self.slot, number: 0, places: &self.rows }
        }

        fn was_called(&self, who: u16) -> bool {
            self.rows.called[usize::from(who)].load(Ordering::Relaxed) != 0
        }
    }

    fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(body);
    }

    /// The holder leaves while another one lies down: that one sees the core free, is given it and
    /// called, or has it before it sleeps.
    #[test]
    fn a_waiter_is_called_or_has_the_core() {
        model(3, || {
            let world = World::new(2);
            assert!(world.core().enter(row(0), Mark::of(5), true).is_ok());
            let waiter = {
                let world = world.clone();
                loom::thread::spawn(move || wants(&world.core(), row(1), Mark::of(5)))
            };
            world.core().leave(row(0), true, || ());
            let up = waiter.join().unwrap();
            assert_eq!(world.slot.load().holder(), Some(row(1)));
            assert!(up || world.was_called(1), "it sleeps on a core of its own");
        });
    }

    /// A waiter goes away just as it is given the core: the core does not stay with it.
    #[test]
    fn a_core_is_not_left_with_one_that_went() {
        model(3, || {
            let world = World::new(2);
            assert!(world.core().enter(row(0), Mark::of(5), true).is_ok());
            assert!(world.core().enter(row(1), Mark::of(4), true).is_err());
            let waiter = {
                let world = world.clone();
                loom::thread::spawn(move || world.core().leave(row(1), true, || ()))
            };
            world.core().leave(row(0), true, || ());
            waiter.join().unwrap();
            assert_eq!(world.slot.load().holder(), None);
        });
    }

    /// One leaves, two of different levels come: the higher one has it in the end, and the lower
    /// one waits or was displaced.
    #[test]
    fn the_higher_of_two_has_it() {
        model(2, || {
            let world = World::new(3);
            assert!(world.core().enter(row(0), Mark::of(9), true).is_ok());
            let comers: Vec<_> = [(1, 4), (2, 7)]
                .into_iter()
                .map(|(who, level)| {
                    let world = world.clone();
                    loom::thread::spawn(move || wants(&world.core(), row(who), Mark::of(level)))
                })
                .collect();
            world.core().leave(row(0), true, || ());
            let ups: Vec<bool> = comers.into_iter().map(|comer| comer.join().unwrap()).collect();
            assert_eq!(world.slot.load().held(), Some((row(2), Mark::of(7))));
            assert!(ups[1] || world.was_called(2));
            let lower_knows = !ups[0] || world.rows.was_displaced(1);
            assert!(lower_knows, "the lower one runs on, and nobody told it");
        });
    }

    /// A holder accepts what it was given while a third one evicts it: one of the two has it, never
    /// neither with a waiter asleep.
    #[test]
    fn eviction_loses_nobody() {
        model(3, || {
            let world = World::new(2);
            assert!(world.core().enter(row(0), Mark::of(5), true).is_ok());
            let waiter = {
                let world = world.clone();
                loom::thread::spawn(move || wants(&world.core(), row(1), Mark::of(3)))
            };
            world.core().evict(world.slot.load());
            let up = waiter.join().unwrap();
            assert_eq!(world.slot.load().holder(), Some(row(1)));
            assert!(up || world.was_called(1));
        });
    }
}
