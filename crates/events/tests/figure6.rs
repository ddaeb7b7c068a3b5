//! P0's figure 6: one block and unblock in thirteen steps, recorded and compared with
//! figure6.golden, under each event source.
#![cfg(not(loom))]

#[path = "../examples/minimal/scheduler.rs"]
#[allow(dead_code)]
mod scheduler;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use kumihimo_events::kernel::Settings;
use kumihimo_events::limit::Limit;
use kumihimo_events::preempt::Means;
use kumihimo_events::source::Kind;
use kumihimo_events::{Record, Step};
use scheduler::{Scheduler, check};

const HIGH: u8 = 40;
const LOW: u8 = 10;

/// The progress of the replay, so that each thread acts in turn.
#[derive(Default)]
struct Stage(AtomicU32);

impl Stage {
    fn set(&self, stage: u32) {
        self.0.store(stage, SeqCst);
    }

    fn is(&self, stage: u32) -> bool {
        self.0.load(SeqCst) >= stage
    }

    /// Waits for a stage. Called by a kernel thread outside of the pool.
    fn wait(&self, stage: u32) {
        while !self.is(stage) {
            std::thread::yield_now();
        }
    }
}

/// Renders the figure's steps, with kernel threads named in the order in which they appear.
fn text(records: &[Record]) -> String {
    let mut names: Vec<u32> = Vec::new();
    let mut text = String::new();
    for record in records.iter().take(13) {
        write!(text, "{} {:?}", record.step.number(), record.step).expect("memory");
        if record.thread != 0 {
            let known = names.iter().position(|thread| *thread == record.thread);
            let name = known.unwrap_or_else(|| {
                names.push(record.thread);
                names.len() - 1
            });
            write!(text, " k{}", name + 1).expect("memory");
        }
        if let Some((state, bound)) = record.state {
            write!(text, " {state:?}{}", if bound { " bound" } else { "" }).expect("memory");
        }
        if let Some(priority) = record.priority {
            write!(text, " priority {priority}").expect("memory");
        }
        text.push('\n');
    }
    text
}

fn replay(source: Kind) -> Option<String> {
    let settings = Settings {
        vps: 1,
        parked: 0,
        concurrency: 1,
        limit: Limit::asked(8, "the test"),
        source: Some(source),
        preempt: Some(Means::Off),
        record: true,
    };
    let package = match Scheduler::open(settings) {
        Ok(package) => package,
        Err(why) => {
            eprintln!("\n[skip] figure6 under {source}: {why}");
            return None;
        }
    };
    let stage = Arc::new(Stage::default());
    let its = stage.clone();
    // B runs before A sleeps, so that its pages are present and it does not sleep by itself.
    let b = package.spawn(LOW, move || {
        while !its.is(4) {
            check();
            // A has started and B runs: so A sleeps, and B has the VP.
            let _ = its.0.compare_exchange(1, 2, SeqCst, SeqCst);
        }
    });
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let (its, kernel) = (stage.clone(), package.kernel().clone());
    let a = package.spawn(HIGH, move || {
        its.set(1);
        let mut byte = [0];
        // An earlier block of A, for a page, is not the figure's block.
        let from = kernel.records().len();
        let n = reader.read(&mut byte).expect("no EINTR");
        // Without a trap the return is noticed here; with a trap it has been noticed already.
        check();
        // A stays in user code until the figure is complete: later steps do not belong to it.
        while kernel.records().len() < from + 13 {
            std::hint::spin_loop();
        }
        its.set(4);
        (n, byte, from)
    });
    // B has the VP since A began to sleep.
    stage.wait(2);
    package.kernel().record(Step::Interrupt, 0, None);
    writer.write_all(&[7]).expect("room");
    let (n, byte, from) = a.expect("memory").join().expect("no panic");
    assert_eq!((n, byte), (1, [7]));
    b.expect("memory").join().expect("no panic");
    let records = package.kernel().records();
    package.wait();
    Some(text(&records[from..]))
}

fn golden() -> String {
    let lines = include_str!("figure6.golden").lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn recorded_steps_match_figure_6() {
    for source in [Kind::Bpf, Kind::Perf, Kind::Watch] {
        if let Some(seen) = replay(source) {
            assert_eq!(seen, golden(), "under {source}");
        }
    }
}

/// Checks the golden file: it has each step of the figure once, and deviates from the paper's order
/// only as its comment explains.
#[test]
fn golden_file_has_each_step_once() {
    let numbers: Vec<u8> = golden()
        .lines()
        .map(|line| line.split(' ').next().and_then(|n| n.parse().ok()).expect("a number"))
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 12, 9, 10, 13, 11]);
}
