//! Others of its core go first: a virtual processor that has answered everybody lets them run
//! before it sleeps.
//!
//! A client is often runnable already, on the same core. sched_yield(2) runs it, and its next
//! request is there when the call returns: no sleep, and no wake-up of the VP. Without another
//! runnable thread the call returns at once, and the VP sleeps. Beside a computing thread it
//! returns late, and has given a slice away (`yield_task_fair` of kernel/sched/fair.c): then the VP
//! sleeps at once for a while, twice as long each time.

use std::cell::Cell;

use crate::board;
use crate::record::Mp;
use crate::vp::Vp;

/// With more descriptors than this it sleeps: what many ask in the time that a sleep and a wake-up
/// take is worth more, done at once (echo with a thousand connections had a fifth fewer requests,
/// with a quarter more processor time each).
const FEW: u32 = 64;
/// Others that run for longer compute, nanoseconds.
const LATE: u64 = 100_000;
/// A call that took less ran nobody, nanoseconds.
const AT_ONCE: u64 = 1_500;
/// How often others go first before the VP sleeps.
const TIMES: u32 = 4;
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
pub(crate) struct Courtesy {
    /// Not before this, on the instance's clock.
    not_before: Cell<u64>,
    rest: Cell<u64>,
    credit: Cell<u32>,
    passed_over: Cell<u32>,
}

impl Default for Courtesy {
    fn default() -> Courtesy {
        Courtesy {
            not_before: Cell::new(0),
            rest: Cell::new(FIRST_REST),
            credit: Cell::new(CREDIT),
            passed_over: Cell::new(0),
        }
    }
}

impl Courtesy {
    /// Whether others are to go first, now.
    fn is_due(&self, now: u64) -> bool {
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
    fn took(&self, nanoseconds: u64, now: u64) -> bool {
        if nanoseconds > LATE {
            self.not_before.set(now + self.rest.get());
            self.rest.set((self.rest.get() * 2).min(LONGEST_REST));
        }
        (AT_ONCE..=LATE).contains(&nanoseconds)
    }

    /// Whether something came of it.
    fn brought(&self, something: bool) {
        let credit = self.credit.get();
        self.credit.set(if something {
            (credit + 1).min(CREDIT)
        } else {
            credit.saturating_sub(1)
        });
    }
}

impl Vp {
    /// Whether the VP yields its core now. Not where the board shares the cores out, which knows
    /// the next thread.
    pub(crate) fn is_courteous(&self, now: u64) -> bool {
        (1..=FEW).contains(&self.poller.waited_for())
            && !board::shares_cores()
            && self.courtesy.is_due(now)
    }

    /// What came while others ran, and the time. May return nothing.
    #[cold]
    pub(crate) fn let_others_go_first(&self, since: u64) -> (Option<&'static Mp>, u64) {
        self.idle.cell.set_polling();
        let (mut found, mut now) = (None, since);
        for _ in 0..TIMES {
            // SAFETY: no arguments; it always succeeds.
            unsafe { libc::sched_yield() };
            self.poller.poll_ready(false);
            self.look_around();
            found = self.pick_or_pull();
            let before = std::mem::replace(&mut now, self.instance().now());
            if !self.courtesy.took(now - before, now) || found.is_some() {
                break;
            }
        }
        self.idle.cell.set_running();
        self.courtesy.brought(found.is_some());
        (found, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_peers_are_yielded_to_ever_more_rarely() {
        let courtesy = Courtesy::default();
        let mut now = 1;
        for rest in [20, 40, 80, 160] {
            assert!(courtesy.is_due(now));
            assert!(!courtesy.took(3_000_000, now));
            courtesy.brought(true);
            assert!(!courtesy.is_due(now + rest * 1_000_000 - 1));
            now += rest * 1_000_000;
        }
        for _ in 0..20 {
            courtesy.took(LATE + 1, now);
        }
        assert!(!courtesy.is_due(now + LONGEST_REST - 1) && courtesy.is_due(now + LONGEST_REST));
    }

    #[test]
    fn where_nothing_comes_it_is_tried_now_and_then() {
        let courtesy = Courtesy::default();
        for _ in 0..CREDIT {
            assert!(courtesy.is_due(0));
            assert!(!courtesy.took(300, 0), "nobody ran");
            courtesy.brought(false);
        }
        let tried = (0..10 * SELDOM).filter(|_| courtesy.is_due(0)).count();
        assert_eq!(tried, 10);
        courtesy.brought(true);
        assert!(courtesy.is_due(0) && courtesy.is_due(0), "something comes again");
        assert!(courtesy.took(AT_ONCE, 0), "others ran, and may be about to ask");
    }
}
