//! loom models of the composed machine: park, idle, hand-off and timers with the kernel's half.
//!
//! Each model ends only if no wake-up is lost: a VP or a kernel thread that sleeps for ever is a
//! deadlock, which loom reports. loom also reports a microprocess that two kernel threads run, and
//! a VP with two owners, by the cells that stand for a stack and for the owner's half.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ::loom::model::Builder;
use ::loom::thread;

use crate::model::machine::{Call, Machine, Scenario};

/// Explores a machine with kernel thread 1 as the carrier, a spare, and the waker if there is one.
/// `KUMI_LOOM_BOUND` raises the bound on preemptions.
fn explore(preemptions: usize, scenario: Scenario) {
    let mut builder = Builder::new();
    let bound = std::env::var("KUMI_LOOM_BOUND").ok().and_then(|text| text.parse().ok());
    builder.preemption_bound = Some(bound.unwrap_or(preemptions));
    builder.max_branches = 20_000;
    let (runs, begin) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let count = runs.clone();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        let machine = Machine::new(scenario);
        let who = machine.waiter();
        let spare = {
            let machine = machine.clone();
            thread::spawn(move || machine.live(2))
        };
        let waker = scenario.has_waker.then(|| {
            let machine = machine.clone();
            thread::spawn(move || machine.wake_from_outside(who))
        });
        machine.carry(1);
        machine.live(1);
        spare.join().unwrap();
        if let Some(waker) = waker {
            waker.join().unwrap();
        }
        machine.check();
    });
    println!("{} executions, {:?}", runs.load(Ordering::Relaxed), begin.elapsed());
}

/// The VP goes idle while the waiter is woken: on its futex.
#[test]
fn parked_microprocess_is_woken_while_its_vp_goes_idle() {
    explore(3, Scenario { has_waker: true, ..Scenario::default() });
}

/// As above, in its epoll set.
#[test]
fn parked_microprocess_is_woken_while_its_vp_goes_to_its_descriptors() {
    explore(3, Scenario { has_waker: true, has_descriptors: true, ..Scenario::default() });
}

/// The waiter's first timer and a waker race.
#[test]
fn timer_and_waker_end_a_wait_once() {
    explore(3, Scenario { has_waker: true, has_timer: true, ..Scenario::default() });
}

/// The VP moves to the spare with its first timer, which the spare fires.
#[test]
fn first_timer_moves_with_the_vp() {
    for call in [Call::Reported, Call::Announced] {
        explore(3, Scenario { call: Some(call), has_timer: true, ..Scenario::default() });
    }
}

/// The sleeper's VP is lent while a thread outside wakes the waiter. The sleeper keeps the VP, or
/// leaves its kernel thread.
#[test]
fn reported_call_hands_over_while_the_waiter_is_woken() {
    explore(2, Scenario { call: Some(Call::Reported), has_waker: true, ..Scenario::default() });
}

/// As above, with a call that was announced.
#[test]
fn announced_call_hands_over_while_the_waiter_is_woken() {
    explore(2, Scenario { call: Some(Call::Announced), has_waker: true, ..Scenario::default() });
}

/// The sleeper waits for its VP where it stands, and the carrier hands the VP back.
#[test]
fn returning_sleeper_is_handed_the_vp() {
    explore(
        2,
        Scenario {
            call: Some(Call::Reported),
            has_waker: true,
            traps: true,
            ..Scenario::default()
        },
    );
}

/// All of it: a waker, a timer and a sleeper.
#[test]
fn timer_waker_and_sleeper_leave_none_behind() {
    explore(
        2,
        Scenario {
            call: Some(Call::Reported),
            has_waker: true,
            has_timer: true,
            ..Scenario::default()
        },
    );
}
