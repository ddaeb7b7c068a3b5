//! `echo`: all servers are alive at the same time on core 0, each with its own load generator on
//! core 1. One load runs at a time, slice by slice in random order, so that disturbances affect all
//! servers alike.

use crate::bench::contender::pair::{Pair, Slice};
use crate::bench::contender::{Contender, Missing, Programs, Runtime};
use crate::bench::plan::order::Order;
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;
use crate::bench::report::stats::summary;

/// Metric for which higher is better. For the others, lower is better.
const MORE: &str = "rps";
/// Key that distinguishes the floor's servers, and its value in the rows of the better one.
const CALLS: &str = "calls";
const BETTER: &str = "better";

/// Length of a slice in milliseconds. With ten thousand connections, each needs enough time for a
/// turn.
fn slice_ms(connections: usize) -> u64 {
    if connections > 1_000 { 500 } else { 300 }
}

/// Runs every cell.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut order = Order::new(options.seed);
    for connections in plan::ECHO_CONNECTIONS {
        let mut cell = Cell { connections, pairs: Vec::new(), missing };
        cell.start(plan::echo_servers(options), programs);
        // More slices than runs of other benchmarks, because each is short.
        for _ in 0..options.runs * 2 {
            let mut round = vec![Vec::new(); cell.pairs.len()];
            for i in order.round(cell.pairs.len()) {
                round[i] = cell.slice(i);
            }
            samples.extend(round.into_iter().flatten());
        }
        samples.extend((0..cell.pairs.len()).filter_map(|i| cell.entries(i)));
    }
    let better = better(&samples);
    samples.extend(better);
    samples
}

/// All servers with a given number of connections.
struct Cell<'a> {
    connections: usize,
    /// Servers with their loads; `None` for one that failed.
    pairs: Vec<Option<Pair>>,
    missing: &'a mut Missing,
}

impl Cell<'_> {
    fn label(&self, contender: &Contender) -> String {
        format!("{} connections={}", contender.describe("echo", 1), self.connections)
    }

    fn start(&mut self, contenders: Vec<Contender>, programs: &Programs) {
        for contender in contenders {
            let label = self.label(&contender);
            eprintln!("  {label}");
            match Pair::start(contender, programs, self.connections) {
                Ok(pair) => self.pairs.push(Some(pair)),
                Err(trouble) => self.missing.note(&label, trouble),
            }
        }
    }

    fn slice(&mut self, i: usize) -> Vec<Sample> {
        let Some(mut pair) = self.pairs[i].take() else { return Vec::new() };
        match pair.slice(slice_ms(self.connections)) {
            Ok(slice) => {
                let row = row(&pair.server.contender, &slice, self.connections);
                self.pairs[i] = Some(pair);
                row
            }
            Err(why) => {
                self.missing.note(&self.label(&pair.server.contender), why.into());
                Vec::new()
            }
        }
    }

    /// A refusal is reported once, because it concerns all servers.
    fn entries(&mut self, i: usize) -> Option<Sample> {
        let pair = self.pairs[i].as_mut()?;
        match pair.entries(slice_ms(self.connections)) {
            Ok(each) => Some(sample(
                &pair.server.contender,
                "entries_per_request",
                each,
                "1",
                self.connections,
            )),
            Err(trouble) => {
                self.missing.note("echo entries_per_request", trouble);
                None
            }
        }
    }
}

fn sample(
    contender: &Contender,
    metric: &str,
    value: f64,
    unit: &str,
    connections: usize,
) -> Sample {
    let mut line = format!("{metric} {value} {unit} connections={connections}");
    for key in ["batch", "ready", CALLS] {
        if let Some(value) = contender.value(key) {
            line += &format!(" {key}={value}");
        }
    }
    Sample::parse(&line, &contender.identity("echo", 1)).expect("a sample")
}

/// All samples of a row.
fn row(contender: &Contender, slice: &Slice, connections: usize) -> Vec<Sample> {
    [
        (MORE, slice.rate(), "1/s"),
        ("p50", slice.p50, "us"),
        ("p99", slice.p99, "us"),
        ("p999", slice.p999, "us"),
        ("cpu", slice.cpu / slice.all / 1e3, "us"),
    ]
    .map(|(metric, value, unit)| sample(contender, metric, value, unit, connections))
    .into()
}

/// The better server of the floor, metric by metric, as separate rows (`calls=better`; the note
/// `is` names the server).
fn better(samples: &[Sample]) -> Vec<Sample> {
    let floors: Vec<&Sample> =
        samples.iter().filter(|s| s.identity.runtime == Runtime::Floor.name()).collect();
    let mut done = Vec::new();
    let mut better = Vec::new();
    for one in &floors {
        let mut identity = one.identity.clone();
        identity.keys.insert(CALLS.to_owned(), BETTER.to_owned());
        if done.contains(&identity) {
            continue;
        }
        let of = |calls: &str| -> Vec<&&Sample> {
            let mut like = identity.clone();
            like.keys.insert(CALLS.to_owned(), calls.to_owned());
            floors.iter().filter(|s| s.identity == like).collect()
        };
        let median = |of: &[&&Sample]| {
            let values: Vec<f64> = of.iter().map(|s| s.value).collect();
            let median = summary(&values)?.median;
            Some(if identity.metric == MORE { -median } else { median })
        };
        let all = plan::FLOORS.map(|calls| (calls, of(calls)));
        let ranked = all.iter().filter_map(|(calls, of)| Some((median(of)?, calls, of)));
        let Some((_, calls, best)) = ranked.min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        better.extend(best.iter().map(|sample| {
            let mut sample = (**sample).clone();
            sample.identity = identity.clone();
            sample.notes.insert("is".to_owned(), (*calls).to_owned());
            sample
        }));
        done.push(identity);
    }
    better
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::row::tests::from;

    #[test]
    fn better_floor_is_chosen_per_metric() {
        let mut samples = Vec::new();
        for (runtime, line) in [
            ("floor", "rps 100 1/s connections=10 calls=epoll"),
            ("floor", "rps 120 1/s connections=10 calls=uring"),
            ("floor", "rps 130 1/s connections=10 calls=uring"),
            ("floor", "p99 7 us connections=10 calls=epoll"),
            ("floor", "p99 9 us connections=10 calls=uring"),
            ("tokio", "p99 1 us connections=10"),
            ("floor", "rps 50 1/s connections=1 calls=epoll"),
        ] {
            samples.push(Sample::parse(line, &from("echo", runtime, 1)).unwrap());
        }
        let better = better(&samples);
        let seen: Vec<_> = better
            .iter()
            .map(|s| {
                (
                    s.identity.metric.as_str(),
                    s.identity.keys["connections"].as_str(),
                    s.value,
                    &*s.notes["is"],
                )
            })
            .collect();
        let expect = [
            ("rps", "10", 120.0, "uring"),
            ("rps", "10", 130.0, "uring"),
            ("p99", "10", 7.0, "epoll"),
            ("rps", "1", 50.0, "epoll"),
        ];
        assert_eq!(seen, expect);
        assert!(better.iter().all(|s| s.identity.keys[CALLS] == BETTER));
    }

    #[test]
    fn rows_name_their_contender() {
        let options = Options {
            vps: vec![1],
            rivals: true,
            full: false,
            runs: 1,
            queue: "ring".into(),
            seed: 1,
        };
        let slice = Slice {
            requests: 10.0,
            seconds: 0.5,
            p50: 1.0,
            p99: 2.0,
            p999: 3.0,
            all: 20.0,
            cpu: 40_000.0,
            took: 1.0,
        };
        let all = plan::echo_servers(&options);
        let ours = row(&all[0], &slice, 10);
        assert_eq!((ours[0].value, ours[4].value), (20.0, 2.0));
        assert_eq!(ours[0].identity.keys["batch"], "adaptive");
    }
}
