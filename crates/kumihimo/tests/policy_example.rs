//! Applications' own policies, the example and bad ones. One runtime at a time in a process, so one
//! test at a time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kumihimo::policy::{Info, Placement, Policy, Why};
use kumihimo::runtime::{Events, Runtime};
use kumihimo::thread::{self, Priority};

#[path = "../examples/earliest_deadline.rs"]
mod earliest_deadline;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn the_earliest_deadline_runs_first() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let due: Vec<u64> = (0..200).map(|i| 1_000 + (i * 7_919) % 1_009).collect();
    let mut sorted = due.clone();
    sorted.sort_unstable();
    // A job that blocks in the kernel runs later than its turn, and so do those that wait there for
    // the lock that it holds. Without events it keeps the virtual processor meanwhile.
    let runtime = Runtime::builder().events(Events::Off);
    let mut ran = earliest_deadline::order(&due, runtime).unwrap();
    if !Runtime::builder().build().unwrap().run(|| thread::current().is_microprocess()) {
        // Kernel threads instead of microprocesses (KUMI_LAB=tls=kernel): the kernel orders them.
        ran.sort_unstable();
    }
    assert_eq!(ran, sorted);
}

/// A policy that answers out of range, static or not: the levels above 63 count as 63.
struct TooHigh {
    fixed: bool,
}

impl Policy for TooHigh {
    fn name(&self) -> &str {
        "too high"
    }

    fn place(&self, info: &Info, _: Why) -> Placement {
        Placement { level: 64 + info.priority.get() * 3, quantum: Duration::ZERO, key: None }
    }

    fn is_static(&self) -> bool {
        self.fixed
    }
}

#[test]
fn out_of_range_answers_of_a_policy_are_tolerated() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for fixed in [false, true] {
        let sum: u64 = Runtime::builder().policy(TooHigh { fixed }).build().unwrap().run(|| {
            let all: Vec<_> = (0..100)
                .map(|i| {
                    let priority = Priority::new(i as u8 % 64).unwrap();
                    thread::Builder::new().priority(priority).spawn(move || {
                        thread::yield_now();
                        i
                    })
                })
                .collect();
            all.into_iter().map(|one| one.unwrap().join().unwrap()).sum()
        });
        assert_eq!(sum, 4950);
    }
}
