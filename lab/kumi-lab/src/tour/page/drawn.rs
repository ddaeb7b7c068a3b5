//! Priorities over time on each VP: recorded by the microprocesses themselves, drawn as text.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo::policy::RoundRobin;
use kumihimo::runtime::{self, Runtime};
use kumihimo::thread::{self, Builder, Priority};
use kumihimo_bench_kit::work::spin;
use kumihimo_trace::{Summary, summaries};

use super::text;
use crate::tour::check;

const VPS: usize = 2;
/// For each priority: number of microprocesses, interval between computations, and their duration.
const CROWD: [Kind; 3] = [
    Kind {
        level: 44,
        sign: '#',
        count: 1,
        every: Duration::from_millis(4),
        work: Duration::from_micros(1_200),
    },
    Kind {
        level: 32,
        sign: 'o',
        count: 2,
        every: Duration::from_millis(7),
        work: Duration::from_micros(2_500),
    },
    Kind { level: 20, sign: '.', count: 2 * VPS, every: Duration::ZERO, work: Duration::MAX },
];
/// Minimum duration. The run continues until there are enough marks, because a busy machine
/// produces few in this time, but not longer than `LONGEST`.
const LENGTH: Duration = Duration::from_millis(60);
const MARKS: u64 = 3_500;
const LONGEST: Duration = Duration::from_secs(3);
const COLUMN: Duration = Duration::from_micros(250);
const COLUMNS: usize = 84;
/// Rounds of [`spin`] between two marks: about 20 us.
const ROUNDS: u32 = 15_000;

#[derive(Clone, Copy)]
struct Kind {
    level: u8,
    sign: char,
    count: usize,
    /// Interval between computations; zero means continuously.
    every: Duration,
    work: Duration,
}

/// A moment at which a microprocess was computing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// Sequence number over all microprocesses, which orders the marks.
    seq: u64,
    at: Duration,
    /// Kernel thread that carried the VP.
    carrier: i32,
    level: u8,
}

/// Runs the chapter's drawing, and leaves a trace at `trace`.
pub fn run(trace: &Path) -> Result<(), String> {
    println!();
    let words: Vec<String> = CROWD
        .iter()
        .map(|kind| format!("{} at priority {} ({})", kind.count, kind.level, kind.sign))
        .collect();
    text::say(&format!(
        "Priorities determine which microprocess runs. {VPS} VPs run {}. Microprocesses of priority {} compute \
         without end. Each one of priority {} computes {} every {}, and the one of priority {} computes {} every \
         {}. During computation, all of them record time and VP. For each VP, from left to right, the microprocess \
         that ran, one column for {}:",
        words.join(", "),
        CROWD[2].level,
        CROWD[1].level,
        text::time(CROWD[1].work),
        text::time(CROWD[1].every),
        CROWD[0].level,
        text::time(CROWD[0].work),
        text::time(CROWD[0].every),
        text::time(COLUMN),
    ));
    println!();
    let unwritten = File::create(trace).err();
    let (marks, preempted) = record(trace, unwritten.is_none())?;
    for (n, line) in draw(&marks, busiest(&marks)).iter().enumerate() {
        println!("  VP {n}  {line}");
    }
    println!();
    text::say(&format!(
        "{} marks, ordered by one counter; {} preemptions during this time.",
        text::number(marks.len() as u64),
        text::number(preempted),
    ));
    match unwritten {
        Some(why) => text::say(&format!(
            "No trace file was written: {}: {why} (--trace FILE).",
            trace.display()
        )),
        None => left_behind(trace)?,
    }
    for kind in CROWD {
        check(marks.iter().any(|mark| mark.level == kind.level), || {
            format!("no microprocess of priority {} ran", kind.level)
        })?;
    }
    check(preempted > 0, || "no microprocess was preempted".to_owned())
}

/// Prints the contents and uses of the trace.
fn left_behind(trace: &Path) -> Result<(), String> {
    let all = summaries(trace).map_err(|e| format!("{}: {e}", trace.display()))?;
    let sum = |of: fn(&Summary) -> u64| all.iter().map(of).sum::<u64>();
    check(sum(|s| s.records) > 0, || format!("no records in {}", trace.display()))?;
    println!();
    text::say(&format!(
        "All steps are recorded in {}: {} records, {} lost, with a track for each VP, kernel thread and \
         microprocess.",
        trace.display(),
        text::number(sum(|s| s.records)),
        text::number(sum(|s| s.lost)),
    ));
    println!();
    println!(
        "  to display it   open it at https://ui.perfetto.dev (\"Open trace file\"); the file stays on this machine"
    );
    println!("  to check the order of priorities   kumi trace check {}", trace.display());
    Ok(())
}

fn record(trace: &Path, writable: bool) -> Result<(Vec<Mark>, u64), String> {
    let runtime =
        Runtime::builder().vps(VPS).policy(RoundRobin::with_quantum(Duration::from_millis(3)));
    let runtime = if writable { runtime.trace(trace) } else { runtime };
    let runtime = runtime.build().map_err(|e| format!("no runtime: {e}"))?;
    runtime.run(|| {
        let over = Arc::new(AtomicBool::new(false));
        let seq = Arc::new(AtomicU64::new(0));
        let ends = {
            let (over, seq) = (over.clone(), seq.clone());
            // A kernel thread, which can run beside any computation.
            std::thread::spawn(move || {
                let start = Instant::now();
                std::thread::sleep(LENGTH);
                while seq.load(Relaxed) < MARKS && start.elapsed() < LONGEST {
                    std::thread::sleep(LENGTH / 10);
                }
                over.store(true, Relaxed);
            })
        };
        let start = Instant::now();
        let mut all = Vec::new();
        for kind in CROWD {
            let priority = Priority::new(kind.level).map_err(|e| e.to_string())?;
            for n in 0..kind.count {
                let book = Book {
                    over: over.clone(),
                    seq: seq.clone(),
                    start,
                    level: kind.level,
                    marks: Vec::with_capacity(8_192),
                };
                let first = start + kind.every * n as u32 / 2;
                let one = Builder::new().priority(priority).spawn(move || book.keep(kind, first));
                all.push(one.map_err(|e| e.to_string())?);
            }
        }
        let mut marks = Vec::new();
        for one in all {
            marks.extend(one.join().map_err(|_| "a computing microprocess panicked")?);
        }
        ends.join().map_err(|_| "the ending thread panicked")?;
        marks.sort_unstable_by_key(|mark| mark.seq);
        let metrics = runtime::metrics().ok_or("no runtime")?;
        Ok((marks, metrics.preempted + metrics.stood_aside))
    })
}

/// Marks of one microprocess.
struct Book {
    over: Arc<AtomicBool>,
    seq: Arc<AtomicU64>,
    start: Instant,
    level: u8,
    marks: Vec<Mark>,
}

impl Book {
    fn keep(mut self, kind: Kind, mut due: Instant) -> Vec<Mark> {
        while !self.over.load(Relaxed) {
            let since = Instant::now();
            while !self.over.load(Relaxed) && since.elapsed() < kind.work {
                std::hint::black_box(spin(1, ROUNDS));
                self.mark();
            }
            if !kind.every.is_zero() {
                due += kind.every;
                thread::sleep_until(due);
            }
        }
        self.marks
    }

    fn mark(&mut self) {
        // Never grown, because malloc must not be preempted.
        if self.marks.len() < self.marks.capacity() {
            let seq = self.seq.fetch_add(1, Relaxed);
            let carrier = rustix::thread::gettid().as_raw_nonzero().get();
            self.marks.push(Mark { seq, at: self.start.elapsed(), carrier, level: self.level });
        }
    }
}

/// One row for each VP. If a VP moves to another kernel thread, that thread takes the row of one
/// that does not occur again.
fn rows(marks: &[Mark]) -> Vec<Vec<Mark>> {
    let last: BTreeMap<i32, u64> = marks.iter().map(|mark| (mark.carrier, mark.seq)).collect();
    let mut rows: Vec<(i32, Vec<Mark>)> = Vec::new();
    for mark in marks {
        let row = rows.iter().position(|(carrier, _)| *carrier == mark.carrier);
        let gone =
            || rows.iter().position(|(carrier, _)| rows.len() >= VPS && last[carrier] < mark.seq);
        let row = row.or_else(gone);
        match row {
            Some(row) => {
                rows[row].0 = mark.carrier;
                rows[row].1.push(*mark);
            }
            None => rows.push((mark.carrier, vec![*mark])),
        }
    }
    rows.into_iter().map(|(_, marks)| marks).collect()
}

/// Start of the period with the most marks. At other times, the kernel ran other processes.
fn busiest(marks: &[Mark]) -> Duration {
    let mut times: Vec<Duration> = marks.iter().map(|mark| mark.at).collect();
    times.sort_unstable();
    let within = |&at: &Duration| {
        times.partition_point(|&other| other < at + COLUMN * COLUMNS as u32)
            - times.partition_point(|&other| other < at)
    };
    times.iter().copied().max_by_key(within).unwrap_or_default()
}

/// Draws the marks from `first` on.
fn draw(marks: &[Mark], first: Duration) -> Vec<String> {
    let sign = |level| CROWD.iter().find(|kind| kind.level == level).map_or('?', |kind| kind.sign);
    let line = |row: &Vec<Mark>| {
        let column = |n: usize| {
            let from = first + COLUMN * n as u32;
            let here = row.iter().filter(|mark| mark.at >= from && mark.at < from + COLUMN);
            // The microprocess that ran for most of the column's time.
            let mut counts = BTreeMap::new();
            here.for_each(|mark| *counts.entry(mark.level).or_insert(0) += 1);
            counts.into_iter().max_by_key(|&(_, n)| n).map_or(' ', |(level, _)| sign(level))
        };
        (0..COLUMNS).map(column).collect::<String>()
    };
    let lines = rows(marks).iter().map(line).collect::<Vec<_>>();
    // Kernel threads that carried a VP only before or after have empty lines.
    lines.into_iter().filter(|line| !line.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(10);

    fn mark(seq: u64, column: u32, carrier: i32, level: u8) -> Mark {
        Mark { seq, at: FIRST + COLUMN * column + COLUMN / 4, carrier, level }
    }

    fn drawn(marks: &[Mark]) -> Vec<String> {
        let lines = draw(marks, FIRST);
        assert!(lines.iter().all(|line| line.chars().count() == COLUMNS));
        lines.iter().map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn longest_runner_of_a_column_is_drawn() {
        let marks = [
            mark(0, 0, 7, 20),
            mark(1, 0, 7, 44),
            mark(2, 0, 7, 44),
            mark(3, 2, 7, 32),
            mark(4, 2, 8, 20),
        ];
        assert_eq!(drawn(&marks), ["# o", "  ."]);
    }

    #[test]
    fn kernel_thread_that_takes_over_a_vp_is_drawn_in_its_row() {
        let marks = [mark(0, 0, 7, 20), mark(1, 0, 8, 44), mark(2, 1, 9, 20), mark(3, 2, 8, 44)];
        assert_eq!(drawn(&marks), ["..", "# #"]);
    }

    #[test]
    fn drawing_starts_at_the_busiest_interval() {
        let marks =
            [mark(0, 0, 7, 20), mark(1, 200, 7, 20), mark(2, 201, 7, 20), mark(3, 400, 7, 20)];
        assert_eq!(busiest(&marks), marks[1].at);
        assert_eq!(busiest(&[]), Duration::ZERO);
    }

    #[test]
    fn marks_before_the_first_column_are_left_out() {
        let early = Mark { at: FIRST / 2, ..mark(0, 0, 5, 20) };
        assert_eq!(drawn(&[early, mark(1, 1, 7, 44)]), [" #"]);
        assert!(drawn(&[early]).is_empty());
    }
}
