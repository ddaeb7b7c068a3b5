//! Chapter 8: a clock on the same VP as an endless loop; and a drawing of priorities over time.

use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use kumihimo::runtime::{self, Events, Runtime};
use kumihimo::thread::{self, Builder, Priority};
use kumihimo_bench_kit::work::spin;
use serde_json::{Value, json};

use super::blocks::{Clock, Report, events, histograms};
use crate::tour::page::drawn;
use crate::tour::page::text;
use crate::tour::page::watch::Watch;
use crate::tour::{Args, Figures, check, one_to_one};

const TICKS: usize = 1_000;
/// Duration of the endless loop. A kernel thread ends it, because without events no microprocess
/// could.
const LOOP: Duration = Duration::from_millis(600);
/// A priority below the clock's.
const LOW: u8 = 20;

pub fn run(args: &Args, figures: &mut Figures) -> Result<(), String> {
    if one_to_one() {
        text::say(
            "This chapter shows how a microprocess that computes in an endless loop is preempted. On this machine, \
             each microprocess is a kernel thread (`kumi doctor` prints the reason), and the kernel preempts it.",
        );
        return Ok(());
    }
    text::say(&format!(
        "A microprocess can also compute without any call and without giving way. On one VP, a microprocess \
         computes in a loop for {}, with a lower priority than the clock, which ticks every millisecond. Without \
         events, the loop is not interrupted. With events, its kernel thread is interrupted in user mode, and the \
         VP switches to the clock at any instruction of the loop. Lateness of the ticks:",
        text::time(LOOP),
    ));
    println!();
    let mut all = vec![ask(Some(Events::Off))?];
    let with = ask(None)?;
    if with.report.source != Events::Off.name() {
        all.push(with);
    }
    let reports: Vec<&Report> = all.iter().map(|seen| &seen.report).collect();
    histograms(&reports).iter().for_each(|line| println!("{line}"));
    println!();
    let rows: Vec<Vec<String>> = all.iter().map(Seen::row).collect();
    text::table(
        &["", "ticks", "beside the loop", "preemptions", "late by: p50", "p99", "at most"],
        &rows,
    );
    println!();
    for seen in &all {
        let (source, during) = (seen.report.source.as_str(), seen.report.turns());
        if source == Events::Off.name() {
            check(during == 0, || format!("{during} ticks beside a loop without interruption"))?;
        } else if seen.means == "off" {
            text::say("(No preemption: a debugger is attached, or KUMI_PREEMPT=off.)");
        } else {
            check(during > 0, || format!("no tick during a loop, with {source}"))?;
            check(seen.preempted > 0, || {
                format!("ticks during a loop, but no preemption, with {source}")
            })?;
            text::say(&format!(
                "Interrupted by {}, {} times.",
                seen.means,
                text::number(seen.preempted)
            ));
        }
        let what = format!("ticks of 1 ms beside a loop, p99 late by, {}", events(source));
        figures.add(what, "", text::time(seen.report.quantile(0.99)));
    }
    if all.last().is_some_and(|seen| seen.preempts()) { drawn::run(&args.trace) } else { Ok(()) }
}

/// Runs the clock in a child process.
fn ask(source: Option<Events>) -> Result<Seen, String> {
    let _watch = Watch::open("a clock and an endless loop");
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.args(["tour", "--endless"]);
    if let Some(kind) = source {
        command.env("KUMI_EVENTS", kind.name());
    }
    let done = command.output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&done.stderr);
    check(done.status.success(), || format!("the clock's process: {}: {said}", done.status))?;
    Seen::from_json(&String::from_utf8_lossy(&done.stdout))
        .ok_or("the clock's process made no sense".into())
}

/// The child process.
pub fn child() -> Result<(), String> {
    let runtime = Runtime::builder().vps(1).build().map_err(|e| format!("no runtime: {e}"))?;
    println!("{}", clock_beside_loop(runtime, TICKS, LOOP)?.to_json());
    Ok(())
}

/// Results. `report.blocks` has one entry, the loop.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    report: Report,
    /// Mechanism and number of preemptions.
    means: String,
    preempted: u64,
}

impl Seen {
    fn preempts(&self) -> bool {
        self.report.source != Events::Off.name() && self.means != "off"
    }

    fn row(&self) -> Vec<String> {
        let counts = [self.report.late.len() as u64, self.report.turns() as u64, self.preempted]
            .map(text::number);
        let late = [0.5, 0.99, 1.0].map(|q| text::time(self.report.quantile(q)));
        std::iter::once(events(&self.report.source)).chain(counts).chain(late).collect()
    }

    fn to_json(&self) -> Value {
        json!({ "clock": self.report.to_json(), "means": self.means, "preempted": self.preempted })
    }

    fn from_json(text: &str) -> Option<Seen> {
        let value: Value = serde_json::from_str(text).ok()?;
        Some(Seen {
            report: Report::from_json(&value["clock"].to_string())?,
            means: value["means"].as_str()?.to_owned(),
            preempted: value["preempted"].as_u64()?,
        })
    }
}

fn clock_beside_loop(runtime: Runtime, ticks: usize, length: Duration) -> Result<Seen, String> {
    let clock = Arc::new(Clock::default());
    let over = Arc::new(AtomicBool::new(false));
    runtime.run(|| {
        let ticker = {
            let clock = clock.clone();
            thread::spawn(move || clock.run(ticks))
        };
        let (begun, begins) = std::sync::mpsc::channel();
        let looping = {
            let over = over.clone();
            let low = Builder::new().priority(Priority::new(LOW).map_err(|e| e.to_string())?);
            low.spawn(move || {
                // If the receiver has failed, `over` is never set.
                begun.send(()).expect("a receiver");
                endless(&over)
            })
            .map_err(|e| e.to_string())?
        };
        let during = {
            let clock = clock.clone();
            std::thread::spawn(move || {
                // Ticks before this are not beside the loop.
                begins.recv().expect("the loop begins");
                let before = clock.ticks();
                std::thread::sleep(length);
                let during = clock.ticks() - before;
                over.store(true, Relaxed);
                during
            })
        };
        let (rounds, wrong) = looping.join().map_err(|_| "the loop panicked")?;
        check(rounds > 0 && wrong == 0, || {
            format!("{wrong} of {rounds} rounds of the loop had a wrong result")
        })?;
        clock.alone();
        let late = ticker.join().map_err(|_| "the clock panicked")?;
        // The thread has ended, because it ended the loop.
        let during = during.join().map_err(|_| "the thread that ends the loop panicked")?;
        let metrics = runtime::metrics().ok_or("no runtime")?;
        let report = Report {
            source: metrics.events.to_owned(),
            late,
            blocks: vec![during],
            left_out: Vec::new(),
        };
        Ok(Seen {
            report,
            means: metrics.preemption,
            preempted: metrics.preempted + metrics.stood_aside,
        })
    })
}

/// Computes until `over` without any call. Returns the number of rounds, and of wrong results.
fn endless(over: &AtomicBool) -> (u64, u64) {
    let right = spin(1, 1_000);
    let (mut rounds, mut wrong) = (0, 0);
    while !over.load(Relaxed) {
        wrong += u64::from(spin(black_box(1), 1_000) != right);
        rounds += 1;
    }
    (rounds, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tour::ONE_AT_A_TIME;

    fn seen(source: Option<Events>) -> Option<Seen> {
        if one_to_one() {
            // Written past libtest's capture: xtask counts these lines.
            let line = "\n[skip] tour::loops: microprocesses are kernel threads here\n";
            std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes())
                .expect("standard error is open");
            return None;
        }
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let builder = Runtime::builder().vps(1);
        let builder = source.into_iter().fold(builder, |builder, source| builder.events(source));
        Some(
            clock_beside_loop(builder.build().expect("a runtime"), 20, Duration::from_millis(100))
                .expect("no error"),
        )
    }

    #[test]
    fn without_events_no_tick_runs_during_a_loop() {
        let Some(seen) = seen(Some(Events::Off)) else { return };
        assert_eq!((seen.report.turns(), seen.preempted), (0, 0), "{seen:?}");
        assert!(seen.report.late.len() >= 20);
    }

    #[test]
    fn preempted_loop_is_counted() {
        let Some(seen) = seen(None) else { return };
        // The number of punctual ticks depends on the machine; all ticks happen eventually.
        assert!(seen.report.late.len() >= 20);
        if seen.preempts() {
            assert!(seen.preempted > 0, "{seen:?}");
        }
    }

    #[test]
    fn observations_of_the_child_are_parsed_unchanged() {
        let report = Report {
            source: "perf".into(),
            late: vec![Duration::from_millis(2)],
            blocks: vec![7],
            left_out: Vec::new(),
        };
        let seen = Seen { report, means: "signal=23".into(), preempted: 3 };
        assert_eq!(Seen::from_json(&seen.to_json().to_string()), Some(seen));
        assert_eq!(Seen::from_json("{}"), None);
    }
}
