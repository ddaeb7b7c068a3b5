//! `idle_cost` of `events`: cost of a source when nothing blocks. Each workload runs without a
//! source, with each, and without again.

use crate::bench::contender::pair::Pair;
use crate::bench::contender::{Contender, Missing, Programs, Trouble};
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;

const CONNECTIONS: usize = 1_000;
const SLICE_MS: u64 = 500;
const VPS: usize = 1;

/// A workload that is a separate benchmark.
struct Work {
    name: &'static str,
    bench: &'static str,
    arg: &'static str,
    metric: &'static str,
}

const WORKS: [Work; 3] = [
    Work { name: "yield", bench: "yield", arg: "part=switch", metric: "switch" },
    Work { name: "message", bench: "message", arg: "part=roundtrip", metric: "roundtrip" },
    Work { name: "compute", bench: "events", arg: "part=compute", metric: "time" },
];

/// Runs every workload under every source.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let mut samples = Vec::new();
    for work in WORKS {
        eprintln!("  idle_cost work={}", work.name);
        // The first run is the reference. The last one shows the difference between two equal runs.
        let mut runs: Vec<_> = ["off"]
            .into_iter()
            .chain(plan::SOURCES)
            .chain(["off"])
            .map(|source| (source, plan::with_source(options, source, work.arg), true))
            .collect();
        for _ in 0..options.runs {
            let mut base = None;
            for (source, contender, takes_part) in runs.iter_mut().filter(|run| run.2) {
                match time_of(contender, programs, &work) {
                    Ok(time) => match base {
                        None => base = Some(time),
                        Some(base) => {
                            samples.push(ratio(contender, source, work.name, time / base))
                        }
                    },
                    Err(trouble) => {
                        *takes_part = false;
                        missing.note(
                            &format!("idle_cost work={} events={source}", work.name),
                            trouble,
                        );
                        if base.is_none() {
                            break;
                        }
                    }
                }
            }
            if base.is_none() {
                break;
            }
        }
    }
    samples.extend(echo(options, programs, missing));
    samples
}

fn time_of(contender: &Contender, programs: &Programs, work: &Work) -> Result<f64, Trouble> {
    let samples = contender.run(programs, work.bench, VPS)?;
    let ours = |s: &&Sample| {
        s.identity.metric == work.metric && s.identity.runtime == contender.runtime.name()
    };
    Ok(samples
        .iter()
        .find(ours)
        .ok_or_else(|| format!("no {} among its samples", work.metric))?
        .value)
}

fn ratio(contender: &Contender, source: &str, work: &str, value: f64) -> Sample {
    let line = format!("idle_cost {value} ratio work={work} events={source}");
    Sample::parse(&line, &contender.identity("events", VPS)).expect("a sample")
}

/// All servers are alive at the same time, as in the benchmark, with slices in turn. The ratio is
/// that of the time for each request.
fn echo(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    eprintln!("  idle_cost work=echo");
    let mut pairs = Vec::new();
    for source in ["off"].into_iter().chain(plan::SOURCES) {
        // A source that was refused before is refused here as well: a server does not report it in
        // time.
        if missing.refused.iter().any(|line| line.contains(&format!("events={source}:"))) {
            continue;
        }
        match Pair::start(plan::with_source(options, source, "part=serve"), programs, CONNECTIONS) {
            Ok(pair) => pairs.push((source, pair)),
            Err(trouble) => missing.note(&format!("idle_cost work=echo events={source}"), trouble),
        }
    }
    let mut samples = Vec::new();
    for _ in 0..options.runs * 2 {
        let mut base = None;
        for (source, pair) in &mut pairs {
            match (pair.slice(SLICE_MS).map(|slice| slice.rate()), base) {
                (Ok(rate), None) if rate > 0.0 && *source == "off" => base = Some(rate),
                (Ok(rate), Some(base)) if rate > 0.0 => {
                    samples.push(ratio(&pair.server.contender, source, "echo", base / rate));
                }
                (Err(why), _) => {
                    missing.note(&format!("idle_cost work=echo events={source}"), why.into());
                    return samples;
                }
                // On a busy machine there may be no reply within a slice, and then nothing to
                // compare.
                _ => {}
            }
        }
    }
    samples
}
