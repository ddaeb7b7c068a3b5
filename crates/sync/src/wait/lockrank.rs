//! Debug-build check of the order of this crate's internal spin locks, and that none is held across
//! a park.
//!
//! [`Rank`] defines the order, outermost first. One record per kernel thread suffices, because no
//! microprocess switches while it holds one of these locks. In release builds the checks are empty.

use std::cell::Cell;

/// Ranks of the internal locks. A lock may be taken only while all held locks have smaller ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Rank {
    /// `inherit::BOOSTS`: the loans of priority between microprocesses.
    #[cfg_attr(loom, allow(dead_code))]
    Boosts = 0,
    /// `inherit::BLOCKED[i]`: the mutex for which each waiter blocks.
    #[cfg_attr(loom, allow(dead_code))]
    Blocked = 1,
    /// Wait list of a mutex, condition variable, channel or other blocking type.
    List = 2,
}

/// Off under loom: the models use loom's own locks.
const CHECKED: bool = cfg!(all(debug_assertions, not(loom)));

thread_local! {
    /// One bit for each rank that this kernel thread holds.
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
