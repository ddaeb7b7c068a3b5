//! Yields the core once before the VP sleeps, so that runnable threads on the same core proceed
//! first.
//!
//! A client is often runnable already, on the same core. sched_yield(2) runs it, and its next
//! request is there when the call returns: no sleep, and no wake-up of the VP. Without another
//! runnable thread the call returns at once, and the VP sleeps. Beside a computing thread it
//! returns late, and has given a slice away (`yield_task_fair` of kernel/sched/fair.c): then the VP
//! sleeps at once for a while, twice as long each time.

use std::cell::Cell;

/// With more descriptors than this it sleeps: what many ask in the time that a sleep and a wake-up
/// take is worth more, done at once (echo with a thousand connections had a fifth fewer requests,
/// with a quarter more processor time each).
pub(crate) const FEW: u32 = 64;
/// Others that run for longer compute, nanoseconds.
const LATE: u64 = 100_000;
/// A call that took less ran nobody, nanoseconds.
const AT_ONCE: u64 = 1_500;
/// How often others go first before the VP sleeps.
pub(crate) const TIMES: u32 = 4;
/// So long it sleeps at once after others computed, nanoseconds, ...
const FIRST_REST: u64 = 20_000_000;
/// ... then twice as long, ... up to this: what a slice given away costs those that wait is then a
/// ten-thousandth of the time.
const LONGEST_REST: u64 = 20_000_000_000;
/// Ends of work at which nothing came, after which only one in [`SELDOM`] is tried.
const CREDIT: u32 = 8;
const SELDOM: u32 = 32;

/// Whether it pays. By the owner.
#[derive(Debug)]
pub(crate) struct YieldCore {
    /// Not before this, on the instance's clock.
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
    /// Whether others are to go first, now.
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

    /// One call took so long, until `now`. Whether another one may bring something.
    pub(crate) fn note_duration(&self, nanoseconds: u64, now: u64) -> bool {
        if nanoseconds > LATE {
            self.not_before.set(now + self.rest.get());
            self.rest.set((self.rest.get() * 2).min(LONGEST_REST));
        }
        (AT_ONCE..=LATE).contains(&nanoseconds)
    }

    /// Whether something came of it.
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
