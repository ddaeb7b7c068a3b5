//! `trace`: cost of tracing under real loads. Each round runs with tracing off, on, and off again;
//! the last one shows the difference between two equal runs.

use std::path::Path;

use kumihimo_trace::session;

use crate::bench::contender::pair::Pair;
use crate::bench::contender::{Contender, Missing, Programs, TRACE, Trouble};
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;

const CONNECTIONS: usize = 1_000;
const SLICE_MS: u64 = 500;
const VPS: usize = 1;

/// Runs both loads.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let contenders = [plan::TRACED[0], plan::TRACED[1], plan::TRACED[0]]
        .map(|trace| plan::traced(options, trace));
    let mut samples = hashing(&contenders, options, programs).unwrap_or_else(|trouble| {
        missing.note("trace load=hashing", trouble);
        Vec::new()
    });
    match echo(&contenders, options, programs) {
        Ok(more) => samples.extend(more),
        Err(trouble) => missing.note("trace load=echo", trouble),
    }
    samples
}

fn ratio(contender: &Contender, load: &str, value: f64, lost: &str) -> Sample {
    let trace = contender.value("trace").unwrap_or("?");
    let line = format!("overhead {value} ratio load={load} trace={trace} lost:={lost}");
    Sample::parse(&line, &contender.identity("trace", VPS)).expect("a sample")
}

fn hashing(
    contenders: &[Contender],
    options: &Options,
    programs: &Programs,
) -> Result<Vec<Sample>, Trouble> {
    eprintln!("  overhead load=hashing");
    let mut samples = Vec::new();
    for _ in 0..options.runs {
        let mut base = None;
        for contender in contenders {
            let run = contender.run(programs, "trace", VPS)?;
            let time = run
                .iter()
                .find(|s| s.identity.metric == "time")
                .ok_or("no time among its samples")?;
            let Some(base) = base else {
                base = Some(time.value);
                continue;
            };
            let lost = time.notes.get("lost").map_or("0", String::as_str);
            samples.push(ratio(contender, "hashing", time.value / base, lost));
        }
    }
    Ok(samples)
}

/// All servers are alive at the same time, with slices in turn, as in the benchmark `echo`. The
/// ratio is that of the time for each request.
fn echo(
    contenders: &[Contender],
    options: &Options,
    programs: &Programs,
) -> Result<Vec<Sample>, Trouble> {
    eprintln!("  overhead load=echo");
    let start = |contender: &Contender| Pair::start(contender.clone(), programs, CONNECTIONS);
    let mut pairs = contenders.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let mut ratios = Vec::new();
    for _ in 0..options.runs * 2 {
        let mut base = None;
        for (i, pair) in pairs.iter_mut().enumerate() {
            let rate = pair.slice(SLICE_MS)?.rate();
            // On a busy machine there may be no reply within a slice, and then nothing to compare.
            if rate == 0.0 {
                break;
            }
            match base {
                None => base = Some(rate),
                Some(base) => ratios.push((i, base / rate)),
            }
        }
    }
    // A server reports lost records only at its end.
    let mut lost = Vec::new();
    for pair in pairs {
        let traced = pair.server.contender.value("trace") == Some("on");
        let (said, pid) = pair.end();
        // The server is still converting an unneeded trace when it is ended, and gets no time to
        // remove its spool file.
        if let Some(spool) = session::find_spool(Path::new(TRACE), pid) {
            let _ = std::fs::remove_file(spool);
        }
        lost.push(match traced {
            true => said?
                .strip_prefix("lost ")
                .ok_or("the server did not print its number of lost records")?
                .to_owned(),
            false => "0".to_owned(),
        });
    }
    Ok(ratios
        .into_iter()
        .map(|(i, value)| ratio(&contenders[i], "echo", value, &lost[i]))
        .collect())
}
