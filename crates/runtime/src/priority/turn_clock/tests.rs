use super::*;

const QUANTUM: u64 = 1_000;

/// Returns the clock of a turn that began at time 0, after that number of switches.
fn begun(switches: u64) -> TurnClock {
    let turn = TurnClock::new();
    assert!(turn.notice(switches, 0) && !turn.notice(switches, 400));
    assert_eq!(
        (turn.left(QUANTUM, 0), turn.left(QUANTUM, 400), turn.left(QUANTUM, 1_100)),
        (1_000, 600, 0)
    );
    turn
}

#[test]
fn turn_after_an_ended_turn_starts_at_that_end() {
    for switches in [0, 7, u64::MAX - 1] {
        let turn = begun(switches);
        turn.end(1_100);
        assert_eq!(turn.over.load(Ordering::Relaxed), switches);
        // However late the switch is seen.
        assert!(turn.notice(switches.wrapping_add(1), 1_500));
        assert_eq!((turn.left(QUANTUM, 1_500), turn.left(QUANTUM, 2_100)), (600, 0));
    }
}

#[test]
fn turn_after_an_unrequested_switch_starts_when_seen() {
    let turn = begun(7);
    assert!(turn.notice(8, 500));
    assert_eq!(turn.left(QUANTUM, 500), 1_000);
    // The time of the last of several switches is unknown, even if the first one was requested ...
    turn.end(1_500);
    assert!(turn.notice(10, 1_900));
    assert_eq!(turn.left(QUANTUM, 1_900), 1_000);
    // ... or the one before.
    turn.end(2_900);
    assert!(turn.notice(11, 3_000) && turn.notice(12, 3_400));
    assert_eq!(turn.left(QUANTUM, 3_400), 1_000);
}

#[test]
fn microprocess_that_runs_on_starts_a_new_turn() {
    let turn = begun(7);
    turn.end(1_000);
    assert!(!turn.notice(7, 1_200));
    turn.goes_on();
    assert_eq!(turn.left(QUANTUM, 1_200), 800);
    assert!(turn.notice(8, 1_900));
    assert_eq!(turn.left(QUANTUM, 1_900), 1_000);
}

#[test]
fn vp_that_switches_often_is_scanned_less_often() {
    let turn = TurnClock::new();
    let mut switches = 0;
    turn.notice(switches, 0);
    let mut paces = Vec::new();
    for often in [OFTEN, OFTEN - 1, OFTEN, OFTEN, OFTEN, OFTEN, OFTEN, 0] {
        switches += often;
        paces.push(turn.slow_down(switches, false, 10));
        turn.notice(switches, 0);
    }
    assert_eq!(paces, [20, 10, 20, 40, 80, 160, 160, 10]);
}

#[test]
fn lost_time_does_not_count() {
    let turn = begun(7);
    let reading = |now, on_core| Reading { thread: 1, now, idle: 0, on_core };
    assert!(!turn.exclude_lost(reading(400, 50)), "the first reading has nothing to compare with");
    assert!(turn.exclude_lost(reading(1_000, 150)));
    assert_eq!(turn.left(QUANTUM, 1_000), 500);
    assert!(!turn.exclude_lost(reading(1_200, 350)));
    assert_eq!(turn.left(QUANTUM, 1_200), 300);
}

#[test]
fn vp_without_a_core_or_with_one_microprocess_is_scanned_less_often() {
    let turn = begun(7);
    let paces: Vec<_> = [(7, true), (7, true), (7, false), (7, true), (8, true)]
        .into_iter()
        .map(|(switches, is_left)| {
            let pace = turn.slow_down(switches, is_left, 10);
            turn.notice(switches, 500);
            pace
        })
        .collect();
    // One that has switched may have been idle.
    assert_eq!(paces, [20, 40, 10, 20, 10]);
}
