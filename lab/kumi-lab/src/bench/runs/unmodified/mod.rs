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

/// The number of programs that ran under `kumi run`, and how to read a missing one.
pub fn notes(options: &Options, rows: &[Row]) -> Vec<Note> {
    let mut all: Vec<&str> = unmodified(options).iter().map(|cell| cell.program.name()).collect();
    all.sort_unstable();
    all.dedup();
    let ours: Vec<&Identity> =
        rows.iter().map(|row| &row.identity).filter(|of| of.runtime == OURS).collect();
    let is_measured =
        |name: &&&str| ours.iter().any(|of| of.keys.get("program").is_some_and(|key| key == *name));
    let measured = all.iter().filter(is_measured).count();
    let text = format!(
        "{measured} of {} programs have rows under `kumi run`. A line MISSING ROW or NOT MEASURED has the reason for each program or runtime without them.",
        all.len()
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

/// Runs the contenders of a cell in turn, in an order drawn anew for each round. One that fails
/// takes part in no further round.
fn rounds<T>(
    cell: &Cell,
    mut contenders: Vec<Option<(&'static str, T)>>,
    runs: usize,
    order: &mut Order,
    missing: &mut Missing,
    mut once: impl FnMut(&'static str, &mut T) -> Result<Vec<Sample>, Trouble>,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    for _ in 0..runs {
        let mut round = vec![Vec::new(); contenders.len()];
        for i in order.round(contenders.len()) {
            let Some((runtime, contender)) = &mut contenders[i] else { continue };
            match once(runtime, contender) {
                Ok(some) => round[i] = some,
                Err(trouble) => {
                    missing.note(&label(cell, runtime), trouble);
                    contenders[i] = None;
                }
            }
        }
        samples.extend(round.into_iter().flatten());
    }
    samples
}

/// A server with its load.
struct Pair {
    // Dropped first, so that the server sees the end of its connections.
    load: Process,
    server: Server,
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
            Ok(pair) => pairs.push(Some((*runtime, pair))),
            Err(trouble) => missing.note(&label, trouble),
        }
    }
    let mut incomplete = Vec::new();
    let samples = rounds(cell, pairs, runs, order, missing, |runtime, pair| {
        let slice = slice(cell, pair)?;
        if slice.dropped > 0.0 {
            incomplete.push((runtime, slice.dropped));
        }
        Ok(slice.rows(cell, runtime, &pair.server.remarks))
    });
    for (runtime, dropped) in incomplete {
        let why = format!("{dropped} connections were closed, so only their number is a row");
        missing.note(&label(cell, runtime), why.into());
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
    Ok(Pair { load, server })
}

/// The reply of the load generator, and what the server used meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    pub rps: f64,
    pub p50: f64,
    pub p99: f64,
    /// Number of all replies, including those after the end of the slice.
    pub all: f64,
    pub dropped: f64,
    /// CPU time of the server for a request, in microseconds.
    pub cpu: f64,
    /// The server's numbers at the end.
    pub usage: Usage,
}

impl Slice {
    /// Parses the line of the load generator.
    pub fn parse(said: &str, before: &Usage, usage: Usage) -> Result<Slice, String> {
        let numbers: Vec<f64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[requests, seconds, p50, p99, all, dropped] = numbers.as_slice() else {
            return Err(format!("the load printed {said:?}"));
        };
        if all == 0.0 {
            return Err(format!("no request was answered, {dropped} connections were closed"));
        }
        let cpu = usage.since(before)?.as_secs_f64() * 1e6 / all;
        Ok(Slice { rps: requests / seconds, p50, p99, all, dropped, cpu, usage })
    }

    fn rows(&self, cell: &Cell, runtime: &str, remarks: &str) -> Vec<Sample> {
        let mut rows = Vec::new();
        // Fewer connections are less work than the cell has.
        if self.dropped == 0.0 {
            rows.extend([("p50", self.p50, "us"), ("p99", self.p99, "us")]);
            // Beside queries that compute, CPU time and rate are theirs.
            if matches!(cell.load, Load::Connections { .. }) {
                rows.extend([("rps", self.rps, "1/s"), ("cpu", self.cpu, "us")]);
            }
            rows.push(("rss", self.usage.rss as f64, "B"));
            rows.push(("kernel_threads", self.usage.kernel_threads as f64, "threads"));
        }
        if matches!(cell.load, Load::Connections { .. }) {
            rows.push(("dropped", self.dropped, "connections"));
        }
        rows.into_iter().map(|row| sample(cell, runtime, row, remarks)).collect()
    }
}

/// Runs one slice.
fn slice(cell: &Cell, pair: &mut Pair) -> Result<Slice, String> {
    let is_fresh = matches!(cell.load, Load::Fresh { .. });
    let before = pair.server.usage()?;
    let said = ask(&mut pair.load, if is_fresh { FRESH_MS } else { SLICE_MS })?;
    Slice::parse(&said, &before, pair.server.usage()?)
}

/// Runs one server of the tour with a load of `count` connections, `active` of which have a
/// request.
pub fn show(
    setup: &Setup,
    program: Program,
    runtime: &'static str,
    (count, active): (usize, usize),
) -> Result<Slice, Trouble> {
    let cell = Cell { program, load: Load::Connections { count, active }, runtimes: &[] };
    let mut pair = begin(&cell, setup, runtime)?;
    Ok(slice(&cell, &mut pair)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn options() -> Options {
        Options { vps: vec![1], rivals: true, full: false, runs: 1, queue: "ring".into(), seed: 1 }
    }

    fn parse(said: &str) -> Result<Slice, String> {
        let usage = |ms, rss| Usage::of(Duration::from_millis(ms), rss, 7);
        Slice::parse(said, &usage(100, 1), usage(150, 4_096))
    }

    fn measured(runtime: &str, said: &str) -> Vec<Sample> {
        parse(said).unwrap().rows(&unmodified(&options())[2], runtime, "java:=25")
    }

    fn shown(samples: &[Sample]) -> Vec<String> {
        samples.iter().map(|s| format!("{} {}", s.identity.metric, s.value)).collect()
    }

    #[test]
    fn slice_of_the_load_becomes_rows() {
        let samples = measured(OURS, "900 0.5 10 20 1000 0");
        let expected =
            ["p50 10", "p99 20", "rps 1800", "cpu 50", "rss 4096", "kernel_threads 7", "dropped 0"];
        assert_eq!(shown(&samples), expected);
        let keys = &samples[0].identity.keys;
        assert_eq!((&*keys["program"], &*keys["connections"]), ("mariadb", "10000"));
        assert!(parse("load: gone").is_err() && parse("0 1 0 0 0 0").is_err());
    }

    #[test]
    fn server_that_closes_connections_has_no_cost() {
        assert_eq!(shown(&measured(OURS, "900 0.5 10 20 1000 3")), ["dropped 3"]);
    }

    #[test]
    fn failed_contender_takes_part_in_no_further_round() {
        let cell = unmodified(&options())[2];
        let contenders = vec![Some((OURS, 0)), Some((PLAIN, 0))];
        let (mut order, mut missing) = (Order::new(1), Missing::default());
        let mut calls = Vec::new();
        let samples =
            rounds(&cell, contenders, 3, &mut order, &mut missing, |runtime, calls_of| {
                *calls_of += 1;
                calls.push(runtime);
                match (runtime, *calls_of) {
                    (OURS, 2) => Err("gone".into()),
                    _ => Ok(measured(runtime, "900 0.5 10 20 1000 3")),
                }
            });
        calls.sort_unstable();
        assert_eq!(calls, [OURS, OURS, PLAIN, PLAIN, PLAIN]);
        assert_eq!(samples.len(), 4);
        assert_eq!(missing.failures.len(), 1);
    }

    #[test]
    fn only_programs_under_kumi_run_count_as_measured() {
        let mut rows = crate::bench::report::row::Rows::default();
        for (runtime, count) in [(PLAIN, 0), (OURS, 1)] {
            for sample in measured(runtime, "900 0.5 10 20 1000 0") {
                rows.add(sample).unwrap();
            }
            let [Note::Text(text)] = &notes(&options(), &rows.rows())[..] else { panic!("a text") };
            assert!(text.starts_with(&format!("{count} of 10 programs have rows")), "{text}");
        }
    }
}
