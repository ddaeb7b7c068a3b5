//! `stall`: an open loop of requests while eight microprocesses block in read(2). A process of BASE
//! sends the requests and provides the data for the reads.

use std::path::Path;
use std::process::Command;

use super::super::child::{Cores, Running, Trouble};
use super::super::verdict::Better;
use super::micro::find_metric;
use super::{Sample, Scratch, Setting, child};

/// Number of virtual processors and cores.
const VPS: usize = 2;
/// Request rate as a share of BASE's capacity without stalls.
const LOAD: f64 = 0.5;
/// Number of requests for measuring the capacity.
const CAPACITY_REQUESTS: usize = 20_000;
const CAPACITY_RUNS: usize = 3;
const SLICE_MS: usize = 200;
/// Number of processes, run one after the other.
const RUNS: usize = 4;

/// Measures several runs at half of BASE's capacity and returns the best.
pub fn measure(kumi: &Path, setting: &mut Setting) -> Result<Sample, Trouble> {
    let source = setting.source()?.to_owned();
    let rate = match setting.stall_rate {
        Some(rate) => rate,
        None => *setting.stall_rate.insert((capacity(&setting.load)? * LOAD).floor()),
    };
    let count = (rate * SLICE_MS as f64 / 1e3) as usize / 4 * 4;
    let (warm, ms) = (format!("warm={}", count / 10), format!("ms={SLICE_MS}"));
    let mut sample = Sample::default();
    for _ in 0..RUNS {
        let (lines, instructions) =
            run(kumi, &setting.load, &["stall=read", &warm, &ms], &source, rate, count)?;
        for metric in ["p50", "p99"] {
            sample.note(metric, Better::Lower, find_metric(&lines, metric, "stall")?);
        }
        sample = sample.counted(instructions, count as f64);
    }
    Ok(sample)
}

/// Requests a second that BASE serves without stalls: the best of several runs.
fn capacity(load: &Path) -> Result<f64, Trouble> {
    let mut most: f64 = 0.0;
    for _ in 0..CAPACITY_RUNS {
        let keys = ["stall=none", "part=capacity"];
        let (lines, _) = run(load, load, &keys, "off", 0.0, CAPACITY_REQUESTS)?;
        most = most.max(find_metric(&lines, "capacity", "stall")?);
    }
    Ok(most)
}

/// Runs `kumi` once, with `load` as the other side. Returns the output and the instruction count.
fn run(
    kumi: &Path,
    load: &Path,
    args: &[&str],
    source: &str,
    rate: f64,
    count: usize,
) -> Result<(Vec<String>, Option<u64>), Trouble> {
    let (directory, place) = (Scratch::in_memory()?, Scratch::below(&std::env::temp_dir())?);
    let [rate, count] = [rate.to_string(), count.to_string()];
    let mut command = Command::new(load);
    command.arg("bench-outside").arg(place.path()).args(["read", &rate, &count]);
    let mut outside = Running::start(command, Cores::All)?;
    outside.hear_word("ready")?;
    let keys = [
        format!("dir={}", place.path().display()),
        format!("rate={rate}"),
        format!("count={count}"),
        format!("events={source}"),
    ];
    let args: Vec<&str> = args.iter().copied().chain(keys.iter().map(String::as_str)).collect();
    let mut command = child(kumi, &directory, "stall", &args, VPS);
    command.env("KUMI_EVENTS", source);
    let mut running = Running::start(command, Cores::Last(VPS))?;
    Ok((running.finish()?, running.instructions()))
}
