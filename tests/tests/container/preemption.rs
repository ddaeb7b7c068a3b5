//! Preemption inside a container, and a container that is throttled.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use kumihimo::runtime::{Distrust, OnDeadlock, OnMisbehaviour, Runtime, metrics};
use kumihimo::thread;
use kumihimo_tests::container::{Container, DEFAULT, USER, is_inside};
use kumihimo_tests::process::is_preempted;

use crate::in_each;

/// Runs until `stop` is set, without any function call.
fn spin(stop: &AtomicBool) -> u64 {
    let mut n = 0u64;
    while !stop.load(Relaxed) {
        n = n.wrapping_mul(31).wrapping_add(7);
    }
    n
}

#[test]
fn endless_loops_stall_no_other_microprocess() {
    const NAME: &str = "preemption::endless_loops_stall_no_other_microprocess";
    if !is_inside() && !is_preempted(NAME) {
        return;
    }
    in_each(NAME, || {
        Runtime::builder().build().expect("a runtime").run(|| {
            let now = metrics().expect("it runs");
            assert!(now.preemption.starts_with("signal"), "perf_event_open is refused: {now:?}");
            let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
            thread::scope(|scope| {
                for _ in 0..=now.vps.len() {
                    scope.spawn(|| spin(&stop));
                }
                scope.spawn(|| {
                    for _ in 0..5 {
                        thread::sleep(Duration::from_millis(1));
                        turns.fetch_add(1, Relaxed);
                    }
                    stop.store(true, Relaxed);
                });
            });
            assert_eq!(turns.load(Relaxed), 5);
        });
    });
}

/// The kernel stops all kernel threads for most of the time. The watchdog must not take that for a
/// stuck scheduler, nor the deadlock detection for a deadlock, nor the checker of the trace for a
/// violated priority order.
#[test]
fn throttling_is_no_misbehaviour() {
    const NAME: &str = "preemption::throttling_is_no_misbehaviour";
    let container = Container { quota: 5_000, user: USER, ..DEFAULT };
    let body = || {
        let distrust = Distrust { on: OnMisbehaviour::End, bound: Duration::from_millis(100) };
        let path = std::env::temp_dir().join(format!("throttled-{}.perfetto", std::process::id()));
        let runtime = Runtime::builder()
            .vps(2)
            .trace(&path)
            .on_misbehaviour(distrust)
            .on_deadlock(OnDeadlock::Abort)
            .build();
        runtime.expect("a runtime").run(|| {
            let stop = AtomicBool::new(false);
            let (sender, receiver) = kumihimo::sync::mpsc::channel();
            thread::scope(|scope| {
                if kumihimo_tests::process::one_to_one()
                    || metrics().expect("it runs").preemption != "off"
                {
                    for _ in 0..3 {
                        scope.spawn(|| spin(&stop));
                    }
                }
                scope.spawn(move || {
                    for n in 0..20 {
                        thread::sleep(Duration::from_millis(1));
                        sender.send(n).expect("it receives");
                    }
                });
                assert_eq!(receiver.iter().sum::<u32>(), 190);
                stop.store(true, Relaxed);
            });
        });
        if !kumihimo_tests::process::is_one_to_one() {
            let report = kumihimo_trace::check(&path, None).expect("a trace");
            assert_eq!(report.overlaps, [""; 0], "{report}");
            assert_eq!(report.verdict(), kumihimo_trace::Verdict::Holds, "{report}");
        }
    };
    container.run_with(NAME, &[], body, |ended, group| {
        let stat = group.get("cpu.stat");
        let throttled = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        assert!(throttled.is_some_and(|n| n.trim() != "0"), "{stat}");
        assert!(!ended.stderr.contains("kumihimo"), "{}", ended.told());
    });
}
