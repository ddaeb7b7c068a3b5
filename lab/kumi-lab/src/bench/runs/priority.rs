//! `priority`: one process computes on all cores at low priority. In another one, a microprocess of
//! high priority on the first core wakes repeatedly for a burst.

use std::fs;
use std::time::{Duration, Instant};

use crate::bench::contender::pair::cpu_time;
use crate::bench::contender::place::Place;
use crate::bench::contender::program::Program;
use crate::bench::contender::{Contender, Missing, Programs, Runtime, Trouble, own_cores};
use crate::bench::plan::Options;
use crate::bench::report::row::{Identity, Sample};

/// Time limit of a run.
const PATIENCE: Duration = Duration::from_secs(60);
const BENCH: &str = "priority";
/// Setting that makes the kernel share the cores among sessions first: see sched(7).
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// Runs all rounds. If sessions make no difference, cells with two sessions are not measured.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let sessions = autogroup(&fs::read_to_string(AUTOGROUP).unwrap_or_default());
    crate::bench::rounds(BENCH, options, missing, |contender, _| {
        if contender.value("session") == Some("separate") {
            sessions.clone()?;
        }
        once(contender, programs)
    })
}

fn autogroup(text: &str) -> Result<(), Trouble> {
    match text.trim() {
        "1" => Ok(()),
        "0" => Err(Trouble::Refused(format!(
            "{AUTOGROUP} is 0: the kernel does not distinguish sessions"
        ))),
        _ => Err(Trouble::Refused(format!(
            "no {AUTOGROUP}: this kernel does not distinguish sessions"
        ))),
    }
}

fn once(contender: &Contender, programs: &Programs) -> Result<Vec<Sample>, Trouble> {
    let place = Place::new(BENCH)?;
    let cores = own_cores();
    let last = cores[cores.len() - 1];
    let start = |side: &str, on: &[usize]| {
        let mut contender = contender.clone();
        contender.args.push(format!("side={side}"));
        contender.args.push(format!("waker_core={last}"));
        contender.args.extend(place.arguments());
        let command = contender.command(programs, BENCH, on.len())?;
        let mut program = Program::start(on, command)?;
        let said = program.hear_within(PATIENCE).map_err(|e| format!("the {side}: {e}"))?;
        match said.strip_prefix("refused: ") {
            Some(why) => Err(Trouble::Refused(why.to_owned())),
            None if said == "ready" => Ok(program),
            None => Err(Trouble::Failed(format!("the {side} printed {said:?}"))),
        }
    };
    // The second process finds all cores taken.
    let low = start("low", &cores)?;
    let (begun, before) = (Instant::now(), cpu_time(low.id()));
    let mut high = start("high", &cores[..1])?;
    let mut samples = ["ready_p99", "done_p50"]
        .map(|_| {
            Ok(Sample::parse(&high.hear_within(PATIENCE)?, &identity(contender, cores.len()))?)
        })
        .into_iter()
        .collect::<Result<Vec<_>, Trouble>>()?;
    let taken = (cpu_time(low.id()) - before) as f64 / begun.elapsed().as_nanos() as f64;
    for sample in &mut samples {
        sample.notes.insert("low_cores".to_owned(), format!("{taken:.2}"));
    }
    Ok(samples)
}

/// All keys of the contender's rows. A rival has the name of the mechanism that orders its kernel
/// threads.
fn identity(contender: &Contender, cores: usize) -> Identity {
    let mut identity = contender.identity(BENCH, cores);
    if contender.runtime == Runtime::Std {
        identity.runtime = contender.value("policy").unwrap_or_default().to_owned();
    }
    let keys = ["burst", "session", "by"].into_iter();
    identity.keys =
        keys.filter_map(|key| Some((key.to_owned(), contender.value(key)?.to_owned()))).collect();
    identity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabled_autogroups_are_refused() {
        assert_eq!(autogroup("1\n"), Ok(()));
        for text in ["0\n", ""] {
            assert!(
                matches!(autogroup(text), Err(Trouble::Refused(why)) if why.contains("sessions"))
            );
        }
    }
}
