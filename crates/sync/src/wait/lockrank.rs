//! Debug-build check of the order in which this crate takes its internal spin locks, and that none
//! is held across a park.
//!
//! The order, outermost first, is [`Rank`]'s. A per-kernel-thread record is enough: no microprocess
//! switches while it holds one of these locks. In release builds all of this is empty.

use std::cell::Cell;

/// The internal locks by rank: a lock may be taken only while all those held have a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Rank {
    /// `inherit::BOOSTS`: which microprocess lends a priority to which.
    #[cfg_attr(loom, allow(dead_code))]
    Boosts = 0,
    /// `inherit::BLOCKED[i]`: which waiter is blocked on which mutex.
    #[cfg_attr(loom, allow(dead_code))]
    Blocked = 1,
    /// The wait list of a mutex, condition variable, channel, ...
    List = 2,
}

/// A model has locks of its own, and checks no order.
const CHECKED: bool = cfg!(all(debug_assertions, not(loom)));

thread_local! {
    /// A bit for each rank that this kernel thread holds.
    static HELD: Cell<u8> = const { Cell::new(0) };
}

#[inline(always)]
#[track_caller]
pub(crate) fn acquire(rank: Rank) {
    if CHECKED {
        let held = HELD.get();
        assert!(
            held >> (rank as u8) == 0,
            "lock order: {rank:?} taken while ranks {held:#05b} are held"
        );
        HELD.set(held | 1 << rank as u8);
    }
}

#[inline(always)]
pub(crate) fn release(rank: Rank) {
    if CHECKED {
        HELD.set(HELD.get() & !(1 << rank as u8));
    }
}

#[inline(always)]
#[track_caller]
#[cfg_attr(loom, allow(dead_code))]
pub(crate) fn assert_none_held() {
    if CHECKED {
        let held = HELD.get();
        assert!(held == 0, "lock order: parking while ranks {held:#05b} are held");
    }
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn order_and_park_are_checked() {
        acquire(Rank::Blocked);
        acquire(Rank::List);
        assert!(catch_unwind(|| acquire(Rank::Boosts)).is_err());
        assert!(catch_unwind(|| acquire(Rank::List)).is_err());
        assert!(catch_unwind(assert_none_held).is_err());
        release(Rank::List);
        release(Rank::Blocked);
        assert_none_held();
    }
}
