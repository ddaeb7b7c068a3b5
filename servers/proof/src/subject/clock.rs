//! The time that stores under test go by.

use std::cell::Cell;

use kumihimo_store::Time;

/// A round number of the year 2023.
const BEGINNING: i64 = 1_700_000_000;

thread_local! {
    static SECONDS: Cell<i64> = const { Cell::new(BEGINNING) };
}

/// What the calling thread's clock shows. It goes on when it is told to, by whole seconds: two
/// stores that ask it during one operation get the same answer, and each granularity of timestamps
/// holds it.
#[must_use]
pub fn now() -> Time {
    Time { seconds: SECONDS.get(), nanoseconds: 0 }
}

/// A second later.
pub fn tick() {
    SECONDS.set(SECONDS.get() + 1);
}

/// As at the beginning of each thread.
pub fn reset() {
    SECONDS.set(BEGINNING);
}
