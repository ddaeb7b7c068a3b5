//! `hostile`: the 99th percentile of other clients' latency while one client attacks
//! (`others_p99`), in slices with the attack and without, in an order drawn from the seed.
//!
//! - `links`: a client of a gate passes descriptors whose close blocks. The others are callers of
//!   the gate (`of=gate`), and requests to the control socket, as of `kumi ps` (`of=control`).
//! - `keyvalue`: a client of `kumi serve kv` sends long commands, and the others send GET and SET.
//!   `attack` has its commands, `load` the others.
//!
//! The server is on the first core, and everything else on the last.

mod attack;
mod keyvalue;
mod links;
mod load;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::bench::contender::{Missing, Programs, Trouble, own_cores};
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;

const BENCH: &str = "hostile";
/// Length of a slice in milliseconds.
const SLICE_MS: u64 = 500;
/// Delays of a slice that is too short for a 99th percentile.
const FEWEST: u64 = 100;

type Measure = fn(&Options, &Programs) -> Result<Vec<Sample>, Trouble>;

/// Runs both parts.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let mut samples = Vec::new();
    let parts: [(&str, Measure); 2] = [("links", links::run), ("kv", keyvalue::run)];
    for (what, measure) in parts {
        eprintln!("  {what}");
        match measure(options, programs) {
            Ok(some) => samples.extend(some),
            Err(trouble) => missing.note(&format!("{BENCH} {what}"), trouble),
        }
    }
    samples
}

/// The samples of one slice: the 99th percentile, and the longest delay where it is known.
fn samples(
    options: &Options,
    (of, attack): (&str, &str),
    under: bool,
    (p99, most): (f64, Option<f64>),
) -> Result<Vec<Sample>, Trouble> {
    let under = if under { "attack" } else { "peace" };
    let identity = plan::hostile(options, &[]).identity(BENCH, 1);
    let rows = [("others_p99", Some(p99)), ("others_max", most)];
    let lines = rows.into_iter().filter_map(|(metric, delay)| {
        Some(format!("{metric} {} us of={of} attack={attack} under={under}", delay?))
    });
    Ok(lines.map(|line| Sample::parse(&line, &identity)).collect::<Result<_, _>>()?)
}

/// Confines the calling kernel thread to the last core.
fn to_last_core() -> Result<(), String> {
    let mut set = CpuSet::new();
    own_cores().last().into_iter().for_each(|&core| set.set(core));
    sched_setaffinity(None, &set).map_err(|e| format!("affinity: {e}"))
}
