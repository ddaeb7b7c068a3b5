//! `run`: unmodified programs plainly, under `kumi run`, and with their own alternative to a thread
//! per connection.
//!
//! - `setup`: the scratch folder; `prepare`: data, configuration and command line of each server;
//!   `command`: what puts a program under `kumi run`.
//! - `server`: a running server, its CPU time, memory and kernel threads.
//! - `alone`: programs that run to their end.
//!
//! All servers of a cell are alive at the same time on the first core, each with its own load on
//! the last. One load runs at a time, slice by slice in an order drawn from the seed.

mod alone;
mod command;
mod prepare;
pub mod server;
pub mod setup;

use std::collections::BTreeMap;

use server::{Server, Usage};
use setup::Setup;

use crate::bench::contender::pair::{ask, start_load};
use crate::bench::contender::program::Program as Process;
use crate::bench::contender::{Missing, Trouble, interposed};
use crate::bench::plan::Options;
use crate::bench::plan::order::Order;
use crate::bench::plan::unmodified::{Cell, Load, unmodified};
pub use crate::bench::plan::unmodified::{OURS, PLAIN, Program};
use crate::bench::report::Note;
use crate::bench::report::row::{Identity, Row, Sample};

const BENCH: &str = "run";
/// Length of a slice in milliseconds.
const SLICE_MS: u64 = 1_000;
/// The same for new connections, of which a thread pool completes one in more than a second.
const FRESH_MS: u64 = 3_000;
const WARM_UP_MS: u64 = 300;

/// Runs every cell.
pub fn run(options: &Options, missing: &mut Missing) -> Vec<Sample> {
    let cells = unmodified(options);
    kumihimo_bench_kit::raise_descriptors();
    let setup = match interposed::build().and_then(|()| Setup::new()) {
        Ok(setup) => setup,
        Err(trouble) => {
            missing.note(BENCH, trouble);
            return Vec::new();
        }
    };
    let mut samples = Vec::new();
    let mut order = Order::new(options.seed);
    for cell in &cells {
        samples.extend(match cell.load {
            Load::Alone => alone::run(cell, &setup, options.runs, &mut order, missing),
            _ => serve(cell, &setup, options.runs, &mut order, missing),
        });
    }
    samples
}

/// The number of programs of which there are rows, and how to read a missing one.
pub fn notes(options: &Options, rows: &[Row]) -> Vec<Note> {
    let mut all: Vec<&str> = unmodified(options).iter().map(|cell| cell.program.name()).collect();
    all.sort_unstable();
    all.dedup();
    let is_measured = |name: &&&str| {
        rows.iter().any(|row| row.identity.keys.get("program").is_some_and(|key| key == *name))
    };
    let measured = all.iter().filter(is_measured).count();
    let text = format!(
        "{measured} of {} programs measured, {} skipped. A skipped program or runtime has a line NOT MEASURED with how to install it.",
        all.len(),
        all.len() - measured
    );
    vec![Note::Text(text)]
}

fn label(cell: &Cell, runtime: &str) -> String {
    format!("{runtime} {BENCH} {}", cell.keys())
}

fn identity(runtime: &str) -> Identity {
    Identity {
        bench: BENCH.to_owned(),
        metric: String::new(),
        runtime: runtime.to_owned(),
        variant: if runtime == OURS { "full" } else { "-" }.to_owned(),
        queue: "-".to_owned(),
        vps: 1,
        keys: BTreeMap::new(),
    }
}

fn sample(
    cell: &Cell,
    runtime: &str,
    (metric, value, unit): (&str, f64, &str),
    remarks: &str,
) -> Sample {
    let line = format!("{metric} {value} {unit} {} {remarks}", cell.keys());
    Sample::parse(&line, &identity(runtime)).expect("a sample")
}

/// A server with its load.
struct Pair {
    // Dropped first, so that the server sees the end of its connections.
    load: Process,
    server: Server,
    runtime: &'static str,
}

/// Measures the servers of a cell.
fn serve(
    cell: &Cell,
    setup: &Setup,
    runs: usize,
    order: &mut Order,
    missing: &mut Missing,
) -> Vec<Sample> {
    let mut pairs = Vec::new();
    for runtime in cell.runtimes {
        let label = label(cell, runtime);
        eprintln!("  {label}");
        match begin(cell, setup, runtime) {
            Ok(pair) => pairs.push(Some(pair)),
            Err(trouble) => missing.note(&label, trouble),
        }
    }
    let mut samples = Vec::new();
    for _ in 0..runs {
        let mut round = vec![Vec::new(); pairs.len()];
        for i in order.round(pairs.len()) {
            let Some(mut pair) = pairs[i].take() else { continue };
            match slice(cell, &mut pair) {
                Ok(some) => {
                    round[i] = some;
                    pairs[i] = Some(pair);
                }
                Err(why) => missing.note(&label(cell, pair.runtime), why.into()),
            }
        }
        samples.extend(round.into_iter().flatten());
    }
    samples
}

/// Starts a server and its load, and warms both up.
fn begin(cell: &Cell, setup: &Setup, runtime: &'static str) -> Result<Pair, Trouble> {
    let count = match cell.load {
        Load::Connections { count, .. } => count,
        _ => 100,
    };
    let server = Server::start(setup, cell.program, runtime, count)?;
    let port = server.port.to_string();
    let protocol = prepare::protocol(cell.program).name();
    let mut load = match cell.load {
        Load::Connections { count, active } => {
            let [count, active] = [count, active].map(|n| n.to_string());
            start_load("bench-requests", &[protocol, &port, &count, &active])?
        }
        Load::Fresh { hogs } => {
            let hogs = format!("--fresh={hogs}");
            start_load("bench-requests", &[protocol, &port, "0", "0", &hogs])?
        }
        Load::Alone => return Err("no load".into()),
    };
    if let Load::Connections { .. } = cell.load {
        ask(&mut load, WARM_UP_MS)?;
    }
    Ok(Pair { load, server, runtime })
}

/// The reply of the load generator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    pub rps: f64,
    pub p50: f64,
    pub p99: f64,
    /// Number of all replies, including those after the end of the slice.
    pub all: f64,
    pub dropped: f64,
}

impl Slice {
    /// Parses the line of the load generator.
    pub fn parse(said: &str) -> Result<Slice, String> {
        let numbers: Vec<f64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[requests, seconds, p50, p99, all, dropped] = numbers.as_slice() else {
            return Err(format!("the load printed {said:?}"));
        };
        if all == 0.0 {
            return Err(format!("no request was answered, {dropped} connections were closed"));
        }
        Ok(Slice { rps: requests / seconds, p50, p99, all, dropped })
    }
}

/// Runs one slice.
fn slice(cell: &Cell, pair: &mut Pair) -> Result<Vec<Sample>, String> {
    let is_fresh = matches!(cell.load, Load::Fresh { .. });
    let before = pair.server.usage()?;
    let slice = ask(&mut pair.load, if is_fresh { FRESH_MS } else { SLICE_MS })?;
    let (slice, after) = (Slice::parse(&slice)?, pair.server.usage()?);
    Ok(rows(cell, pair.runtime, &pair.server.remarks, &slice, &before, &after))
}

fn rows(
    cell: &Cell,
    runtime: &str,
    remarks: &str,
    slice: &Slice,
    before: &Usage,
    after: &Usage,
) -> Vec<Sample> {
    let mut rows = vec![("p50", slice.p50, "us"), ("p99", slice.p99, "us")];
    // Beside queries that compute, CPU time and rate are theirs.
    if matches!(cell.load, Load::Connections { .. }) {
        let cpu = (after.cpu - before.cpu).as_secs_f64() * 1e6 / slice.all;
        rows.extend([("rps", slice.rps, "1/s"), ("cpu", cpu, "us")]);
        rows.push(("dropped", slice.dropped, "connections"));
    }
    rows.extend([
        ("rss", after.rss as f64, "B"),
        ("kernel_threads", after.kernel_threads as f64, "threads"),
    ]);
    rows.into_iter().map(|row| sample(cell, runtime, row, remarks)).collect()
}

/// A thread-per-connection server of the tour, with its measured slice.
pub struct Shown {
    pub slice: Slice,
    /// CPU time of the server for a request, in microseconds.
    pub cpu: f64,
    pub usage: Usage,
}

/// Runs one server with a load of `count` connections, `active` of which have a request.
pub fn show(
    setup: &Setup,
    program: Program,
    runtime: &'static str,
    (count, active): (usize, usize),
) -> Result<Shown, Trouble> {
    let cell = Cell { program, load: Load::Connections { count, active }, runtimes: &[] };
    let mut pair = begin(&cell, setup, runtime)?;
    let before = pair.server.usage()?;
    let slice = Slice::parse(&ask(&mut pair.load, SLICE_MS)?)?;
    let usage = pair.server.usage()?;
    let cpu = (usage.cpu - before.cpu).as_secs_f64() * 1e6 / slice.all;
    Ok(Shown { slice, cpu, usage })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn options() -> Options {
        Options { vps: vec![1], rivals: true, full: false, runs: 1, queue: "ring".into(), seed: 1 }
    }

    fn measured() -> Vec<Sample> {
        let cell = unmodified(&options())[2];
        let slice = Slice::parse("900 0.5 10 20 1000 3").unwrap();
        let usage = |ms, rss| Usage { cpu: Duration::from_millis(ms), rss, kernel_threads: 7 };
        rows(&cell, OURS, "java:=25", &slice, &usage(100, 1), &usage(150, 4_096))
    }

    #[test]
    fn slice_of_the_load_becomes_rows() {
        let shown: Vec<_> =
            measured().iter().map(|s| format!("{} {}", s.identity.metric, s.value)).collect();
        let expected =
            ["p50 10", "p99 20", "rps 1800", "cpu 50", "dropped 3", "rss 4096", "kernel_threads 7"];
        assert_eq!(shown, expected);
        let keys = &measured()[0].identity.keys;
        assert_eq!((&*keys["program"], &*keys["connections"]), ("mariadb", "10000"));
        assert!(Slice::parse("load: gone").is_err() && Slice::parse("0 1 0 0 0 0").is_err());
    }

    #[test]
    fn skipped_programs_are_counted() {
        let mut rows = crate::bench::report::row::Rows::default();
        measured().into_iter().for_each(|sample| rows.add(sample).unwrap());
        let [Note::Text(text)] = &notes(&options(), &rows.rows())[..] else { panic!("a text") };
        assert!(text.starts_with("1 of 10 programs measured, 9 skipped."), "{text}");
    }
}
