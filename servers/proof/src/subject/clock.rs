//! Clock of the stores under test.

use std::cell::Cell;

use kumihimo_store::Time;

/// A round number of seconds in the year 2023.
const BEGINNING: i64 = 1_700_000_000;

thread_local! {
    static SECONDS: Cell<i64> = const { Cell::new(BEGINNING) };
}

/// Time of the calling thread's clock. The clock advances only by [`tick`], by whole seconds. Two
/// stores that read it during one operation get the same time, and every granularity of timestamps
/// can represent it.
#[must_use]
pub fn now() -> Time {
    Time { seconds: SECONDS.get(), nanoseconds: 0 }
}

/// Advances the clock by one second.
pub fn tick() {
    SECONDS.set(SECONDS.get() + 1);
}

/// Resets the clock to its initial time.
pub fn reset() {
    SECONDS.set(BEGINNING);
}
