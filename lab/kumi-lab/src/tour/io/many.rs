//! Chapter 6: an echo server with ten thousand connections, the number of its system calls, and the
//! effect of batching on it; and a well-known server.

use std::time::{Duration, Instant};

use kumihimo_bench_kit::raise_descriptors;
use rustix::process::{Resource, getrlimit};

use crate::bench::contender::pair::{Pair, Slice};
use crate::bench::contender::rivals;
use crate::bench::contender::{Contender, Programs, Runtime, Trouble};
use crate::bench::report::row::Sample;
use crate::bench::runs::sockets::kv;
use crate::tour::page::text;
use crate::tour::{Args, Figures, check, one_to_one};

const CONNECTIONS: usize = 10_000;
/// Number of connections if microprocesses are kernel threads.
const THREADS: usize = 1_000;
/// Number of descriptors for other purposes.
const OTHERS: u64 = 100;
const SLICE_MS: u64 = 250;
/// Number of slices that are shown live, for the first server; the others have fewer.
const SHOWN: usize = 8;
const UNSHOWN: usize = 2;
/// Time after which no further slice is started, because slices take longer on a busy machine.
const LONGEST: Duration = Duration::from_secs(4);
/// Requests a second for each character of the live bar.
const SIGN: f64 = 4_000.0;
/// Characters of a bar for equal costs with and without batching.
const EQUAL: f64 = 40.0;

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    let programs = rivals::programs(false, &[]);
    echo(&programs, figures)?;
    println!();
    batches(&programs)?;
    println!();
    known(&programs, figures)
}

fn echo(programs: &Programs, figures: &mut Figures) -> Result<(), String> {
    raise_descriptors();
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = if one_to_one() { THREADS } else { CONNECTIONS };
    let connections =
        usize::try_from(limit.saturating_sub(OTHERS)).map_or(most, |n| n.clamp(1, most));
    text::say(&format!(
        "The same server in a separate process on one core, with {} connections. The load is another process: on \
         each connection, it sends the next request of 64 bytes after the reply to the previous one. Requests per \
         second during the run:",
        text::number(connections as u64),
    ));
    if connections < most {
        text::say(&format!(
            "(Not {}: the limit on open descriptors is {limit}.)",
            text::number(most as u64)
        ));
    }
    println!();
    let mut rows = Vec::new();
    let mut uncounted = None;
    for (batch, slices) in [("adaptive", SHOWN), ("forced", UNSHOWN), ("plain", UNSHOWN)] {
        let mut pair =
            Pair::start(ours(&format!("batch={batch}")), programs, connections).map_err(why)?;
        let (mut all, start) = (Vec::new(), Instant::now());
        while all.len() < slices && start.elapsed() < LONGEST {
            let slice = pair.slice(SLICE_MS)?;
            if batch == "adaptive" {
                println!("{}", live(start.elapsed(), rate(&slice)));
            }
            all.push(slice);
        }
        let entries = match pair.entries(SLICE_MS) {
            Ok(each) => format!("{each:.3}"),
            Err(trouble) => {
                uncounted = Some(why(trouble));
                "-".to_owned()
            }
        };
        let slice = middle(all);
        let us = |us: f64| text::time(Duration::from_secs_f64(us / 1e6));
        let cpu = us(slice.cpu / slice.all / 1e3);
        let rate = text::number(rate(&slice) as u64);
        if batch == "adaptive" {
            let what =
                format!("echo, {} connections, requests/s", text::number(connections as u64));
            figures.add(format!("{what}, one core"), "", rate.clone());
        }
        rows.push(vec![batch.to_owned(), rate, us(slice.p50), us(slice.p99), cpu, entries]);
    }
    println!();
    text::say(
        "Calls of different microprocesses share an entry to the kernel when this saves time (adaptive, the \
         default). For comparison: calls always share entries (forced), and calls never share entries (plain):",
    );
    println!();
    text::table(
        &["batching", "requests/s", "p50", "p99", "CPU a request", "kernel entries a request"],
        &rows,
    );
    if let Some(why) = uncounted {
        text::say(&format!("(The entries could not be counted: {why}.)"));
    }
    Ok(())
}

/// Rate over all replies up to the last one, so that it is not zero on a busy machine.
fn rate(slice: &Slice) -> f64 {
    slice.all / slice.took
}

/// The slice with the median rate.
fn middle(mut slices: Vec<Slice>) -> Slice {
    slices.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    slices[slices.len() / 2]
}

fn live(at: Duration, rate: f64) -> String {
    format!(
        "  {:>7}  {:>9} {}",
        text::time(at),
        text::number(rate as u64),
        "#".repeat((rate / SIGN).min(72.0) as usize)
    )
}

/// Kumihimo's contender with one argument, or none.
fn ours(arg: &str) -> Contender {
    let args = if arg.is_empty() { Vec::new() } else { vec![arg.to_owned()] };
    let queue = crate::bench::child::default_queue().to_owned();
    Contender { runtime: Runtime::Kumihimo, variant: "full", queue, args, at_most: 1 }
}

fn why(trouble: Trouble) -> String {
    match trouble {
        Trouble::Failed(why) | Trouble::Refused(why) => why,
    }
}

/// Prints the batch curves.
fn batches(programs: &Programs) -> Result<(), String> {
    let curves = curves(programs)?;
    check(!curves.is_empty(), || "no batch was measured".to_owned())?;
    text::say(
        "Cost of a call that shares its entry to the kernel, divided by the cost of a single call, by number of \
         calls in the entry. The mark in each bar is at equal costs:",
    );
    println!();
    for line in curves.iter().flat_map(|(op, curve)| drawn(op, curve)) {
        println!("{line}");
    }
    Ok(())
}

/// Sizes of batches, with the ratio of batched to plain calls.
type Curve = Vec<(u32, f64)>;

/// The curve of each operation. From samples `ratio` of the benchmark `syscall-batch` with the keys
/// `op`, `n` and `batch=fixed`.
fn curves(programs: &Programs) -> Result<Vec<(String, Curve)>, String> {
    // Fewer slices than in the benchmark, for a duration of a few seconds.
    let samples = ours("slices=3").run(programs, "syscall-batch", 1).map_err(why)?;
    let mut curves: Vec<(String, Curve)> = Vec::new();
    for sample in samples.iter().filter(|s| s.identity.metric == "ratio") {
        let of = |key: &str| sample.identity.keys.get(key);
        if of("batch").is_none_or(|batch| batch != "fixed") {
            continue;
        }
        let (Some(op), Some(n)) = (of("op"), of("n").and_then(|n| n.parse().ok())) else {
            continue;
        };
        let i = curves.iter().position(|(known, _)| known == op).unwrap_or_else(|| {
            curves.push((op.clone(), Vec::new()));
            curves.len() - 1
        });
        curves[i].1.push((n, sample.value));
    }
    Ok(curves)
}

fn drawn(op: &str, curve: &[(u32, f64)]) -> Vec<String> {
    let line = |(i, (n, ratio)): (usize, &(u32, f64))| {
        let name = if i == 0 { op } else { "" };
        let signs = "#".repeat((ratio * EQUAL).round().min(1.75 * EQUAL) as usize);
        // Padded to the length of a bar for equal costs.
        let bar = format!("{signs:<width$}", width = EQUAL as usize);
        let (left, right) = bar.split_at(EQUAL as usize);
        format!("  {name:<6} {n:>3}  {ratio:.2}  {left}|{right}").trim_end().to_owned()
    };
    curve.iter().enumerate().map(line).collect()
}

/// Runs redis-benchmark, if installed, against Kumihimo's server and against Redis.
fn known(programs: &Programs, figures: &mut Figures) -> Result<(), String> {
    let redis =
        Contender { runtime: Runtime::Redis, variant: "-", queue: "-".to_owned(), ..ours("") };
    let samples = match kv::pipelined(ours(""), programs) {
        Ok(samples) => samples,
        Err(Trouble::Refused(why)) => {
            text::say(&format!(
                "`kumi serve kv` is a key-value server with the protocol of Redis. Not shown: {why}."
            ));
            return Ok(());
        }
        Err(Trouble::Failed(why)) => return Err(why),
    };
    text::say(
        "`kumi serve kv` is a key-value server with the protocol of Redis. Each connection has a microprocess. \
         redis-benchmark with 50 connections and 16 pipelined requests on each, also with the Redis server if it is \
         installed:",
    );
    println!();
    let mut rows = vec![row("kumi serve kv", &samples)];
    if let Ok(samples) = kv::pipelined(redis, programs) {
        rows.push(row("redis-server", &samples));
    }
    text::table(&["", "SET/s", "GET/s", "CPU a SET", "CPU a GET"], &rows);
    figures.add("SET a second, by redis-benchmark", "", rows[0][1].clone());
    Ok(())
}

fn row(name: &str, samples: &[Sample]) -> Vec<String> {
    let of = |metric: &str, command: &str| {
        let one = |s: &&Sample| {
            s.identity.metric == metric
                && s.identity.keys.get("command").is_some_and(|c| c == command)
        };
        samples.iter().find(one).map_or(0.0, |s| s.value)
    };
    let rate = |command| text::number(of("rps", command) as u64);
    let cpu = |command| text::time(Duration::from_secs_f64(of("cpu", command) / 1e6));
    vec![name.to_owned(), rate("set"), rate("get"), cpu("set"), cpu("get")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_of_a_bar_is_at_equal_costs() {
        let lines = drawn("nop", &[(1, 1.5), (4, 1.0), (16, 0.5)]);
        assert_eq!(lines[0], format!("  nop      1  1.50  {}|{}", "#".repeat(40), "#".repeat(20)));
        assert_eq!(lines[1], format!("           4  1.00  {}|", "#".repeat(40)));
        assert_eq!(lines[2], format!("          16  0.50  {}{}|", "#".repeat(20), " ".repeat(20)));
    }

    #[test]
    fn rate_is_drawn() {
        assert_eq!(live(Duration::from_millis(250), 10_000.0), "   250 ms     10,000 ##");
    }
}
