//! Chapter 7: a clock on the same VP as a page fault, a lock and a pipe that block microprocesses
//! in the kernel.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use kumihimo::runtime::{self, Events, Runtime};
use kumihimo::thread;
use kumihimo_bench_kit::AwaitedPage;
use kumihimo_events::source;
use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use serde_json::{Value, json};

use crate::tour::page::text;
use crate::tour::page::watch::Watch;
use crate::tour::{Args, Figures, check, one_to_one};

const PERIOD: Duration = Duration::from_millis(1);
/// Number of ticks. The clock continues until the last block has ended.
const TICKS: usize = 1_500;
const BLOCKED: Duration = Duration::from_millis(80);
/// Pause between two blocks of one microprocess.
const PAUSE: Duration = Duration::from_millis(10);
const WIDE: usize = 28;

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    if one_to_one() {
        text::say(
            "If a microprocess blocks in the kernel, in code without support for Kumihimo, the kernel thread of \
             its VP blocks too. This chapter shows how the VP continues with events from the kernel. On this \
             machine, each microprocess is a kernel thread (`kumi doctor` prints the reason): the kernel runs the \
             other threads with and without events, so this chapter has no result here.",
        );
        return Ok(());
    }
    text::say(&format!(
        "In the chapters before, microprocesses waited for each other, for timers and for sockets of Kumihimo. In \
         these cases, the VP runs another microprocess. A microprocess can also block in the kernel, in code \
         without support for Kumihimo. On one VP, three microprocesses block for {} at a time: one reads a page \
         that a kernel thread provides later (a page fault, with userfaultfd), one waits for a lock held by another \
         open file (flock), and one reads an empty pipe (with std). A fourth microprocess, the clock, ticks every \
         millisecond. Lateness of the ticks without events from the kernel and with events:",
        text::time(BLOCKED),
    ));
    println!();
    let mut reports = vec![ask(Some(Events::Off))?];
    let with = ask(None)?;
    if with.source != Events::Off.name() {
        reports.push(with);
    }
    draw(&reports);
    println!();
    for report in &reports {
        report.left_out.iter().for_each(|why| {
            text::say(&format!("(Left out with {}: {why}.)", events(&report.source)))
        });
    }
    say_source(reports.last().map_or("", |last| &last.source));
    for report in &reports {
        let during = report.turns();
        if report.source == Events::Off.name() {
            check(during == 0, || {
                format!("{during} ticks while the only VP was blocked, without events")
            })?;
        } else {
            check(during > 0, || {
                format!("no tick while others were blocked, with {}", report.source)
            })?;
        }
        let what = format!("ticks of 1 ms beside blocks, p99 late by, {}", events(&report.source));
        figures.add(what, "", text::time(report.quantile(0.99)));
    }
    Ok(())
}

/// Prints the event source, as `kumi doctor` does.
fn say_source(used: &str) {
    if kumihimo_config::get().events.is_some() {
        return text::say(&format!("Event source: {used}, selected by KUMI_EVENTS."));
    }
    text::say(&format!(
        "Event source: {used}, the best available on this machine (see `kumi doctor`)."
    ));
    for (kind, refused) in source::probe() {
        if let Some(refused) = refused {
            text::say(&format!("Not {kind}: {refused}."));
        }
    }
}

/// Runs the clock in a child process.
fn ask(source: Option<Events>) -> Result<Report, String> {
    let _watch = Watch::open("a clock and three blocking microprocesses");
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.args(["tour", "--clock"]);
    if let Some(kind) = source {
        command.env("KUMI_EVENTS", kind.name());
    }
    let done = command.output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&done.stderr);
    check(done.status.success(), || format!("the clock's process: {}: {said}", done.status))?;
    Report::from_json(&String::from_utf8_lossy(&done.stdout))
        .ok_or("the clock's process made no sense".into())
}

/// The child process.
pub fn child() -> Result<(), String> {
    let runtime = Runtime::builder().vps(1).build().map_err(|e| format!("no runtime: {e}"))?;
    println!("{}", clock_beside_blocks(runtime, TICKS, Span::For(BLOCKED))?.to_json());
    Ok(())
}

/// Duration of a block.
#[derive(Clone, Copy)]
enum Span {
    For(Duration),
    /// Until the clock has ticked this many times, which requires that it ticks beside a block.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "a tour must end on a machine where it does not")
    )]
    Ticks(usize),
}

/// Results.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub source: String,
    /// Delays of all ticks in order.
    pub late: Vec<Duration>,
    /// Number of ticks during each block.
    pub blocks: Vec<usize>,
    /// Kinds of blocks that are unavailable, with reasons.
    pub left_out: Vec<String>,
}

impl Report {
    /// Number of ticks during blocks. A tick counts once for each blocked microprocess.
    pub fn turns(&self) -> usize {
        self.blocks.iter().sum()
    }

    /// The delay that the share `q` of all ticks does not exceed.
    pub fn quantile(&self, q: f64) -> Duration {
        let mut late = self.late.clone();
        late.sort_unstable();
        let rank = (q * late.len() as f64).ceil() as usize;
        late.get(rank.max(1) - 1).copied().unwrap_or_default()
    }

    pub fn to_json(&self) -> Value {
        let late: Vec<u64> = self.late.iter().map(|late| late.as_nanos() as u64).collect();
        json!({ "source": self.source, "late_ns": late, "blocks": self.blocks, "left_out": self.left_out })
    }

    pub fn from_json(text: &str) -> Option<Report> {
        let value: Value = serde_json::from_str(text).ok()?;
        let of = |name| value[name].as_array();
        Some(Report {
            source: value["source"].as_str()?.to_owned(),
            late: of("late_ns")?
                .iter()
                .map(|ns| ns.as_u64().map(Duration::from_nanos))
                .collect::<Option<_>>()?,
            blocks: of("blocks")?
                .iter()
                .map(|n| n.as_u64()?.try_into().ok())
                .collect::<Option<_>>()?,
            left_out: of("left_out")?
                .iter()
                .map(|why| why.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
        })
    }
}

/// A call that blocks in the kernel, and the function that ends it.
struct Block {
    call: Box<dyn FnOnce() -> Result<(), String> + Send>,
    end: Box<dyn FnOnce() + Send>,
}

type Prepare = fn() -> Result<Block, String>;

const KINDS: [(&str, Prepare); 3] =
    [("the page fault", fault), ("the lock", lock), ("the pipe", pipe)];

fn fault() -> Result<Block, String> {
    let (page, provider) = AwaitedPage::new().map_err(|e| format!("userfaultfd: {e}"))?;
    let call = move || check(page.read() == 0, || "a new page does not contain zeros".into());
    Ok(Block { call: Box::new(call), end: Box::new(move || drop(provider)) })
}

fn lock() -> Result<Block, String> {
    let file =
        memfd_create("kumi-lock", MemfdFlags::CLOEXEC).map_err(|e| format!("memfd_create: {e}"))?;
    // Opened again, because a flock(2) lock belongs to the open file description.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let holder = File::open(&path).map_err(|e| format!("{path}: {e}"))?;
    flock(&holder, FlockOperation::LockExclusive).map_err(|e| format!("flock: {e}"))?;
    let call =
        move || flock(&file, FlockOperation::LockExclusive).map_err(|e| format!("flock: {e}"));
    Ok(Block { call: Box::new(call), end: Box::new(move || drop(holder)) })
}

fn pipe() -> Result<Block, String> {
    let (mut reader, mut writer) = std::io::pipe().map_err(|e| format!("pipe: {e}"))?;
    let call = move || {
        let mut byte = [0];
        let read = reader.read(&mut byte).map_err(|e| format!("read: {e}"))?;
        check((read, byte) == (1, *b"x"), || format!("{read} bytes from the pipe, {byte:?}"))
    };
    // If this fails, the reader sees and reports the end of the stream.
    let end = move || drop(writer.write_all(b"x"));
    Ok(Block { call: Box::new(call), end: Box::new(end) })
}

/// State shared by the clock and the other microprocesses.
#[derive(Default)]
pub struct Clock {
    ticks: AtomicUsize,
    alone: AtomicBool,
}

impl Clock {
    /// Number of ticks so far.
    pub fn ticks(&self) -> usize {
        self.ticks.load(SeqCst)
    }

    /// Reports that the other microprocesses have ended.
    pub fn alone(&self) {
        self.alone.store(true, SeqCst);
    }

    /// Ticks this many times, and then until the other microprocesses have ended. A tick whose time
    /// has passed happens at once, and counts as late.
    pub fn run(&self, ticks: usize) -> Vec<Duration> {
        let (start, mut late) = (Instant::now(), Vec::with_capacity(2 * ticks));
        while late.len() < ticks || !self.alone.load(SeqCst) {
            let due = start + PERIOD * (late.len() as u32 + 1);
            if let Some(early) = due.checked_duration_since(Instant::now()) {
                thread::sleep(early);
            }
            late.push(due.elapsed());
            self.ticks.store(late.len(), SeqCst);
        }
        late
    }

    /// Blocks repeatedly until the clock has ticked `until` times. Returns the ticks during each
    /// block, or the reason why blocking is impossible.
    fn blocks(
        &self,
        prepare: Prepare,
        ender: &mpsc::Sender<Box<dyn FnOnce() + Send>>,
        until: usize,
    ) -> Blocks {
        let mut during = Vec::new();
        while self.ticks.load(SeqCst) < until {
            let block = match prepare() {
                Ok(block) => block,
                Err(why) => return Ok(Err(why)),
            };
            // No other microprocess runs on the only VP between here and the end of the call,
            // unless the VP is handed over.
            let before = self.ticks.load(SeqCst);
            ender.send(block.end).map_err(|_| "the thread that ends the blocks has ended")?;
            (block.call)()?;
            during.push(self.ticks.load(SeqCst) - before);
            thread::sleep(PAUSE);
        }
        Ok(Ok(during))
    }

    /// Blocks the kernel thread for the duration.
    fn pass(&self, span: Span) {
        match span {
            Span::For(time) => std::thread::sleep(time),
            Span::Ticks(n) => {
                let since = self.ticks.load(SeqCst);
                while self.ticks.load(SeqCst) < since + n {
                    std::thread::sleep(PERIOD);
                }
            }
        }
    }
}

/// Outer error: a failure. Inner error: the reason why the block is impossible on this machine.
type Blocks = Result<Result<Vec<usize>, String>, String>;

fn clock_beside_blocks(runtime: Runtime, ticks: usize, span: Span) -> Result<Report, String> {
    let clock = Arc::new(Clock::default());
    // Kernel threads end the blocks, because without events no microprocess on the VP could.
    let enders = KINDS.map(|_| {
        let (sender, ends) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let clock = clock.clone();
        std::thread::spawn(move || {
            for end in ends {
                clock.pass(span);
                end();
            }
        });
        sender
    });
    runtime.run(|| {
        let ticker = {
            let clock = clock.clone();
            thread::spawn(move || clock.run(ticks))
        };
        let kinds = KINDS.into_iter().zip(enders).map(|((name, prepare), ender)| {
            let clock = clock.clone();
            (name, thread::spawn(move || clock.blocks(prepare, &ender, ticks)))
        });
        // All blocks are started before the first one is joined.
        let kinds: Vec<_> = kinds.collect();
        let outcomes: Vec<_> = kinds.into_iter().map(|(name, one)| (name, one.join())).collect();
        clock.alone();
        let late = ticker.join().map_err(|_| "the clock panicked")?;
        let source = runtime::metrics().map_or("?", |metrics| metrics.events).to_owned();
        let mut report = Report { source, late, blocks: Vec::new(), left_out: Vec::new() };
        for (name, outcome) in outcomes {
            match outcome
                .map_err(|_| format!("{name}: it panicked"))?
                .map_err(|why| format!("{name}: {why}"))?
            {
                Ok(during) => report.blocks.extend(during),
                Err(why) => report.left_out.push(format!("{name}: {why}")),
            }
        }
        Ok(report)
    })
}

pub fn events(source: &str) -> String {
    format!("events: {source}")
}

/// Upper bounds of the histogram's classes.
const BOUNDS: [(&str, Duration); 5] = [
    ("to 0.1 ms", Duration::from_micros(100)),
    ("to 1 ms", Duration::from_millis(1)),
    ("to 10 ms", Duration::from_millis(10)),
    ("to 100 ms", Duration::from_millis(100)),
    ("more", Duration::MAX),
];

fn draw(reports: &[Report]) {
    for line in histograms(&reports.iter().collect::<Vec<_>>()) {
        println!("{line}");
    }
    println!();
    let rows: Vec<Vec<String>> = reports
        .iter()
        .map(|report| {
            let blocks = report.blocks.len();
            let turns = if blocks == 0 {
                "".into()
            } else {
                format!("{:.1}", report.turns() as f64 / blocks as f64)
            };
            let figures = [0.5, 0.99, 1.0].map(|q| text::time(report.quantile(q)));
            let counts =
                [text::number(report.late.len() as u64), text::number(blocks as u64), turns];
            let name = std::iter::once(events(&report.source));
            name.chain(counts).chain(figures).collect()
        })
        .collect();
    text::table(&["", "ticks", "blocks", "ticks in each", "late by: p50", "p99", "at most"], &rows);
}

/// Histograms side by side.
pub fn histograms(reports: &[&Report]) -> Vec<String> {
    let head =
        reports.iter().map(|report| format!("  {:<w$}", events(&report.source), w = WIDE + 7));
    let mut lines =
        vec![format!("  {:<9}{}", "late by", head.collect::<String>()).trim_end().to_owned()];
    let mut above = None;
    for (name, bound) in BOUNDS {
        let bars = reports.iter().map(|report| {
            let within =
                |late: &&Duration| above.is_none_or(|above| **late > above) && **late <= bound;
            let n = report.late.iter().filter(within).count();
            // At least one character, however many ticks there are in total.
            let bar = "#".repeat((n * WIDE).div_ceil(report.late.len().max(1)));
            format!("  {:>6} {bar:<WIDE$}", text::number(n as u64))
        });
        lines.push(format!("  {name:<9}{}", bars.collect::<String>()).trim_end().to_owned());
        above = Some(bound);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tour::ONE_AT_A_TIME;

    fn report(source: Option<Events>, span: Span) -> Report {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let builder = Runtime::builder().vps(1);
        let builder = source.into_iter().fold(builder, |builder, source| builder.events(source));
        clock_beside_blocks(builder.build().expect("a runtime"), 100, span).expect("no error")
    }

    fn skips(name: &str) -> bool {
        if one_to_one() {
            // Written past libtest's capture: xtask counts these lines.
            let line = format!("\n[skip] {name}: microprocesses are kernel threads here\n");
            std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
        }
        one_to_one()
    }

    #[test]
    fn without_events_no_tick_runs_during_a_block() {
        if skips("without_events_no_tick_runs_during_a_block") {
            return;
        }
        let report = report(Some(Events::Off), Span::For(Duration::from_millis(5)));
        assert!(
            report.late.len() >= 100 && report.blocks.len() >= KINDS.len() - report.left_out.len()
        );
        assert_eq!((report.source.as_str(), report.turns()), ("off", 0), "{report:?}");
    }

    #[test]
    fn with_events_ticks_run_during_each_block() {
        if skips("with_events_ticks_run_during_each_block") {
            return;
        }
        for (kind, refused) in source::probe() {
            if kind == Events::Off || refused.is_some() {
                continue;
            }
            // The blocks do not end before that. Without ticks, this would not return.
            let report = report(Some(kind), Span::Ticks(20));
            assert_eq!(report.source, kind.name());
            assert!(report.blocks.len() >= KINDS.len() - report.left_out.len(), "{report:?}");
            assert!(report.blocks.iter().all(|&during| during >= 20), "{report:?}");
        }
    }

    fn made_up(source: &str, ms: &[u64]) -> Report {
        let late = ms.iter().copied().map(Duration::from_millis).collect();
        Report {
            source: source.into(),
            late,
            blocks: vec![3, 4],
            left_out: vec!["the pipe: broken".into()],
        }
    }

    #[test]
    fn report_of_the_child_is_parsed_unchanged() {
        let report = made_up("perf", &[1, 200, 3]);
        assert_eq!(report.turns(), 7);
        assert_eq!(Report::from_json(&report.to_json().to_string()), Some(report));
        assert_eq!(Report::from_json("{}"), None);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_delays() {
        let report = made_up("off", &[5, 1, 4, 2, 3]);
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|q| report.quantile(q).as_millis()), [1, 3, 5, 5]);
        assert_eq!(made_up("off", &[]).quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn every_tick_is_counted_in_one_bar() {
        let lines = histograms(&[
            &made_up("off", &[0, 1, 2, 10, 11, 101, 900]),
            &made_up("bpf", &[0; 10_000]),
        ]);
        assert_eq!(lines.len(), 1 + BOUNDS.len());
        assert!(lines.iter().all(|line| line.len() <= 100));
        let counts: Vec<&str> =
            lines[1..].iter().map(|line| line[11..].split_whitespace().next().unwrap()).collect();
        assert_eq!(counts, ["1", "1", "2", "1", "2"]);
        assert!(
            lines[1].contains("10,000")
                && lines[1].ends_with(&"#".repeat(WIDE))
                && lines[2].ends_with(" 0")
        );
    }
}
