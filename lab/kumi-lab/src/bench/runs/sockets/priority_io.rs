//! `priority-io`: many connections of low priority saturate the server, and few of high priority
//! are timed. The same server without priorities runs beside it, slice by slice.

use crate::bench::contender::pair::{Server, ask, start_load};
use crate::bench::contender::program::Program;
use crate::bench::contender::{Missing, Programs, Trouble};
use crate::bench::plan::order::Order;
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;

const LOW: usize = 990;
const HIGH: usize = 10;
const WARM_UP_MS: u64 = 300;
const SLICE_MS: u64 = 600;
const BENCH: &str = "priority-io";

/// Runs both servers, and computes the ratios.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    slices(options, programs).unwrap_or_else(|trouble| {
        missing.note(BENCH, trouble);
        Vec::new()
    })
}

/// A server and its load.
struct Pair {
    // Dropped first, so that the server sees the end of its connections.
    load: Program,
    server: Server,
}

fn slices(options: &Options, programs: &Programs) -> Result<Vec<Sample>, Trouble> {
    let mut pairs = Vec::new();
    for contender in plan::priority_servers(options) {
        eprintln!("  {}", contender.describe(BENCH, 1));
        let server = Server::start(contender, programs, BENCH)?;
        let [low, high] = server.ports.as_slice() else {
            return Err("the server has only one port".into());
        };
        let mut load =
            start_load("bench-priority-load", &[low, &LOW.to_string(), high, &HIGH.to_string()])?;
        ask(&mut load, WARM_UP_MS)?;
        pairs.push(Pair { load, server });
    }
    let mut order = Order::new(options.seed);
    let mut samples = Vec::new();
    for _ in 0..options.runs * 2 {
        let mut round = vec![None; pairs.len()];
        for i in order.round(pairs.len()) {
            round[i] = Some(slice(&mut pairs[i])?);
        }
        let [with, without] = [0, 1].map(|i| round[i].as_ref().expect("one slice each"));
        samples.extend(ratios(with, without));
        samples.extend(round.into_iter().flatten().flatten());
    }
    Ok(samples)
}

/// One slice: `high_p50`, `high_p99`, `low_rps`, and the server's share of its core.
fn slice(pair: &mut Pair) -> Result<Vec<Sample>, String> {
    let before = pair.server.cpu_time();
    let said = ask(&mut pair.load, SLICE_MS)?;
    let cpu = pair.server.cpu_time().saturating_sub(before) as f64 / 1e9;
    let numbers: Vec<f64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
    let &[requests, seconds, timed, p50, p99] = numbers.as_slice() else {
        return Err(format!("the load printed {said:?}"));
    };
    let contender = &pair.server.contender;
    let priorities = contender.value("priorities").unwrap_or("?");
    let busy = cpu / seconds;
    [("low_rps", requests / seconds, "1/s"), ("high_p50", p50, "us"), ("high_p99", p99, "us")]
        .map(|(metric, value, unit)| {
            let line = format!(
                "{metric} {value} {unit} priorities={priorities} busy:={busy:.2} timed:={timed}"
            );
            Sample::parse(&line, &contender.identity(BENCH, 1))
        })
        .into_iter()
        .collect()
}

/// `high_p99_ratio` and `low_rps_ratio`: with priorities relative to without, in one round.
fn ratios(with: &[Sample], without: &[Sample]) -> Vec<Sample> {
    let ratio = |metric: &str| {
        let of = |row: &[Sample]| row.iter().find(|s| s.identity.metric == metric).cloned();
        let (with, without) = (of(with)?, of(without)?);
        let mut ratio =
            Sample { value: with.value / without.value, unit: "ratio".to_owned(), ..with };
        ratio.identity.metric = format!("{metric}_ratio");
        ratio.identity.keys.clear();
        ratio.notes.clear();
        ratio.value.is_finite().then_some(ratio)
    };
    ["high_p99", "low_rps"].into_iter().filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::row::tests::from;

    #[test]
    fn ratios_are_priorities_on_over_off() {
        let row = |p99: u32, rps: u32| -> Vec<Sample> {
            [format!("high_p99 {p99} us priorities=on"), format!("low_rps {rps} 1/s priorities=on")]
                .iter()
                .map(|line| Sample::parse(line, &from(BENCH, "kumihimo", 1)).unwrap())
                .collect()
        };
        let ratios = ratios(&row(100, 90), &row(1_000, 100));
        let seen: Vec<_> = ratios.iter().map(|s| (s.identity.metric.as_str(), s.value)).collect();
        assert_eq!(seen, [("high_p99_ratio", 0.1), ("low_rps_ratio", 0.9)]);
        assert!(ratios.iter().all(|s| s.identity.keys.is_empty()));
    }
}
