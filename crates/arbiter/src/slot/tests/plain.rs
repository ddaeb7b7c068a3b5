//! Single-threaded tests of a slot's protocol.

use super::*;
use proptest::prelude::*;

#[test]
fn highest_waiter_goes_first_and_equals_take_turns() {
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
    assert!(!core.turn_over(row(2), Mark::of(11)), "no VP waits at its level");
    assert!(rows.was_displaced(1));
    core.leave(row(2), true, || ());
    assert_eq!(slot.load().held(), Some((row(0), Mark::of(10))));
    // Row 1 was displaced and has not requested the core again.
    core.leave(row(0), true, || ());
    assert_eq!(slot.load().held(), Some((row(3), Mark::SPENT)));
    core.leave(row(3), true, || ());
    assert_eq!(slot.load().holder(), None);
    assert_eq!(slot.waiting[0].load(Ordering::Relaxed), 0);
}

#[test]
fn sinking_holder_gives_the_core_up() {
    let (slot, rows) = (Slot::new(), Rows::new(2));
    let core = SlotProtocol { slot: &slot, number: 0, places: &rows };
    assert!(core.enter(row(0), Mark::of(10), true).is_ok());
    assert!(core.enter(row(1), Mark::of(5), true).is_err());
    assert!(core.enter(row(0), Mark::of(4), true).is_err());
    assert_eq!(slot.load().held(), Some((row(1), Mark::of(5))));
}

proptest! {
    /// For any content of the slot and the cells, each operation ends without a panic, and `enter`
    /// returns whether the VP has the core.
    #[test]
    fn any_word_ends_without_panic(word: u64, bits: [u64; 4], waits: [u32; 4], level in 0u8..=63) {
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

    /// Any sequence of the operations of four address spaces: after each step no waiter is higher
    /// than the holder.
    #[test]
    fn no_waiter_is_higher_than_the_holder(steps in proptest::collection::vec((0u16..4, 0u8..5, 0u8..8), 0..200)) {
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
