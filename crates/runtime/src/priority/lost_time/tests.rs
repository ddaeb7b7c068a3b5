use super::*;

const START: Reading = Reading { thread: 1, now: 1_000, idle: 300, on_core: 500 };

fn after(now: u64, idle: u64, on_core: u64) -> Reading {
    Reading {
        thread: START.thread,
        now: START.now + now,
        idle: START.idle + idle,
        on_core: START.on_core + on_core,
    }
}

/// Returns what the turn lost after `START`.
fn lost(turn: u64, reading: Reading) -> u64 {
    let time = LostTime::default();
    assert_eq!(time.of_turn(turn, START), 0, "nothing is known before the first reading");
    time.of_turn(turn, reading)
}

#[test]
fn time_without_a_core_is_lost() {
    assert_eq!(lost(900, after(1_000, 0, 400)), 600);
    assert_eq!(lost(900, after(1_000, 250, 400)), 350);
}

#[test]
fn turn_on_the_core_loses_nothing() {
    assert_eq!(lost(900, after(1_000, 0, 1_000)), 0);
    // It spun while it idled, so that both clocks advanced.
    assert_eq!(lost(900, after(1_000, 300, 1_000)), 0);
}

#[test]
fn turn_loses_no_more_than_its_length() {
    assert_eq!(lost(100, after(10_000, 0, 2_000)), 100);
}

#[test]
fn other_kernel_thread_loses_nothing() {
    let time = LostTime::default();
    time.of_turn(900, START);
    let other = Reading { thread: 2, ..after(1_000, 0, 0) };
    assert_eq!(time.of_turn(900, other), 0);
    let next = Reading { now: other.now + 500, on_core: other.on_core + 200, ..other };
    assert_eq!(time.of_turn(900, next), 300);
}

#[test]
fn computing_turn_ends_after_its_quantum_on_the_core() {
    // A third of the core: 300 of each 900 nanoseconds.
    const QUANTUM: u64 = 300;
    let time = LostTime::default();
    time.of_turn(QUANTUM, START);
    let (mut ran, mut on_core) = (0, 0);
    for step in 1..=3 {
        on_core += 100;
        let turn = 300;
        ran += turn - time.of_turn(turn, after(300 * step, 0, on_core));
    }
    assert_eq!(ran, QUANTUM);
}
