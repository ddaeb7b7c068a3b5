//! Priorities over the board are exact within a bounded number of steps: processes that share the
//! cores are traced, and the checker merges their traces into one order.
//!
//! `crates/trace/src/check/board_order.rs` explains what is counted.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kumihimo::policy::{FixedPriority, Policy, RoundRobin};
use kumihimo::runtime::Runtime;
use kumihimo::thread::{self, Builder};
use kumihimo_tests::place::Place;
use kumihimo_tests::process::{finish, has_vps, is_child, is_preempted, start};
use kumihimo_tests::{Random, Round, rounds};
use kumihimo_trace::{Verdict, check_together};

use crate::level;

/// One of the processes: some microprocesses compute on all virtual processors, others wake,
/// compute and change their priorities.
fn child() {
    let number = |name: &str| {
        std::env::var(name).expect("set by the parent").parse::<u64>().expect("a number")
    };
    let (mut random, low) = (Random(number("KUMI_TEST_SEED")), number("KUMI_TEST_LOW"));
    let policy: Box<dyn Policy> =
        if random.one_in(2) { Box::new(FixedPriority) } else { Box::new(RoundRobin::new()) };
    let runtime =
        Runtime::builder().policy(policy).trace_buffer(1 << 19).build().expect("a runtime");
    runtime.run(|| {
        println!("ready");
        std::io::stdout().flush().expect("standard output is open");
        thread::blocking(|| std::io::stdin().read_exact(&mut [0]).expect("it is to begin"));
        let over = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..thread::available_parallelism().map_or(1, usize::from))
            .map(|n| {
                let over = over.clone();
                let hog = move || {
                    while !over.load(Ordering::Relaxed) {
                        // One of the microprocesses passes no switch point.
                        compute(20_000);
                        if n > 0 {
                            thread::yield_now();
                        }
                    }
                };
                Builder::new().priority(level(low as u8)).spawn(hog).expect("it begins")
            })
            .collect();
        let actors: Vec<_> = (0..8)
            .map(|n| {
                let random = random.split();
                let actor = Builder::new().priority(level(20 + n * 5)).spawn(move || actor(random));
                actor.expect("it begins")
            })
            .collect();
        for actor in actors {
            actor.join().expect("no panic");
        }
        over.store(true, Ordering::Relaxed);
        for hog in hogs {
            hog.join().expect("no panic");
        }
    });
}

fn actor(mut random: Random) {
    for _ in 0..60 {
        match random.below(6) {
            0 => thread::current().set_priority(level(11 + random.below(50) as u8)),
            1 => thread::yield_now(),
            2 => drop(
                Builder::new()
                    .priority(level(random.below(64) as u8))
                    .spawn(|| compute(1_000))
                    .expect("it begins"),
            ),
            _ => thread::sleep(Duration::from_micros(random.below(800))),
        }
        compute(random.below(100_000));
    }
}

fn compute(turns: u64) {
    for n in 0..turns {
        black_box(n);
    }
}

/// Runs `processes` processes and checks their traces. The traces of a failed check are kept.
fn share(name: &str, round: &mut Round, processes: usize, vps: usize) {
    let place = Place::new(&format!("{name}-{}", round.number));
    let traces: Vec<PathBuf> =
        (0..processes).map(|n| place.0.with_extension(format!("{n}.perfetto"))).collect();
    let vps = vps.to_string();
    let mut children: Vec<_> = traces
        .iter()
        .enumerate()
        .map(|(n, trace)| {
            let (seed, low) = (round.random.number().to_string(), (n % 2 * 10).to_string());
            let trace = trace.to_str().expect("a path");
            let environment = [
                ("KUMI_ARBITER", "on"),
                ("KUMI_VPS", &vps),
                ("KUMI_DIR", place.path()),
                ("KUMI_TRACE", trace),
                ("KUMI_TEST_SEED", &seed),
                ("KUMI_TEST_LOW", &low),
            ];
            start(name, &environment)
        })
        .collect();
    for child in &mut children {
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            if lines.read_line(&mut line).expect("it writes") == 0 {
                break;
            }
        }
        child.stdout = Some(lines.into_inner());
    }
    // All processes join the board before any of them does much.
    for child in &mut children {
        // If the write fails, the process has ended. The reason is reported below.
        let _ = child.stdin.as_mut().expect("a pipe").write_all(b"\n");
    }
    for child in children {
        let ended = finish(name, child);
        assert!(ended.status.success(), "{name}: {}", ended.told());
    }
    let report = check_together(&traces, None).expect("traces that belong together");
    let board = report.board.as_ref().expect("requests for cores");
    eprintln!("{board}");
    assert_eq!(report.verdict(), Verdict::Holds, "{traces:?}: {report}");
    assert!(board.gave_way > 0 && board.runs == processes, "{traces:?}: {report}");
    traces.iter().for_each(|trace| std::fs::remove_file(trace).expect("it is there"));
}

/// Runs `processes` processes with `vps` virtual processors for each core.
fn shared_by(name: &str, processes: usize, vps: usize) {
    if is_child(name) {
        return child();
    }
    if !has_vps(name) || !is_preempted(name) {
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for mut round in rounds(name) {
        share(name, &mut round, processes, cores * vps);
    }
}

#[test]
fn two_processes_share_the_cores_exactly() {
    shared_by("exact::two_processes_share_the_cores_exactly", 2, 1);
}

#[test]
fn three_processes_share_the_cores_exactly() {
    shared_by("exact::three_processes_share_the_cores_exactly", 3, 1);
}

#[test]
fn more_virtual_processors_than_cores_share_them_exactly() {
    shared_by("exact::more_virtual_processors_than_cores_share_them_exactly", 2, 2);
}
