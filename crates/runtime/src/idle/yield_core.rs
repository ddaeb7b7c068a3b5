//! Yields the core once before the VP sleeps, so that runnable threads on the same core proceed
//! first.
//!
//! A client is often runnable on the same core already. sched_yield(2) runs the client, whose next
//! request is there when the call returns. The VP then neither sleeps nor is woken. Without another
//! runnable thread the call returns at once, and the VP sleeps. Beside a computing thread the call
//! returns late, and has given a slice away (`yield_task_fair` in kernel/sched/fair.c). The VP then
//! sleeps without yielding for a while, and doubles that time after each further late return.

use std::cell::Cell;

/// Number of descriptors above which the VP sleeps at once. With many clients, requests accumulate
/// while the VP sleeps and wakes up, and are served more efficiently together. (An echo server with
/// a thousand connections served a fifth fewer requests when it yielded, with a quarter more
/// processor time per request.)
pub(crate) const FEW: u32 = 64;
/// Duration, in nanoseconds, above which the other threads count as computing.
const LATE: u64 = 100_000;
/// Duration, in nanoseconds, below which no other thread ran.
const AT_ONCE: u64 = 1_500;
/// Number of yields before the VP sleeps.
pub(crate) const TIMES: u32 = 4;
/// Time without yields after the first late return, in nanoseconds. ...
const FIRST_REST: u64 = 20_000_000;
/// ... It doubles up to this limit. At the limit, the given-away slices cost waiting microprocesses
/// a ten-thousandth of the time.
const LONGEST_REST: u64 = 20_000_000_000;
/// Number of fruitless yields after which only one idle period in [`SELDOM`] yields.
const CREDIT: u32 = 8;
const SELDOM: u32 = 32;

/// Decides whether yielding is worth while. Owner only.
#[derive(Debug)]
pub(crate) struct YieldCore {
    /// Earliest time of the next yield, on the instance's clock.
    not_before: Cell<u64>,
    rest: Cell<u64>,
    credit: Cell<u32>,
    passed_over: Cell<u32>,
}

impl Default for YieldCore {
    fn default() -> YieldCore {
        YieldCore {
            not_before: Cell::new(0),
            rest: Cell::new(FIRST_REST),
            credit: Cell::new(CREDIT),
            passed_over: Cell::new(0),
        }
    }
}

impl YieldCore {
    /// Whether the VP should yield at time `now`.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        if now < self.not_before.get() {
            return false;
        }
        if self.credit.get() > 0 {
            return true;
        }
        self.passed_over.set((self.passed_over.get() + 1) % SELDOM);
        self.passed_over.get() == 0
    }

    /// Records the duration of one yield, until `now`. Returns whether another yield may bring
    /// work.
    pub(crate) fn note_duration(&self, nanoseconds: u64, now: u64) -> bool {
        if nanoseconds > LATE {
            self.not_before.set(now + self.rest.get());
            self.rest.set((self.rest.get() * 2).min(LONGEST_REST));
        }
        (AT_ONCE..=LATE).contains(&nanoseconds)
    }

    /// Records whether the yields brought work.
    pub(crate) fn note_result(&self, something: bool) {
        let credit = self.credit.get();
        self.credit.set(if something {
            (credit + 1).min(CREDIT)
        } else {
            credit.saturating_sub(1)
        });
    }
}

#[cfg(test)]
mod tests;
