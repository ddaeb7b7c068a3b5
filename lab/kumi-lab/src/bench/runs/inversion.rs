//! `inversion`: three processes on one core. A caller of high priority waits for a server of low
//! priority, which a third process of medium priority keeps from the core.

use std::time::Duration;

use crate::bench::contender::place::Place;
use crate::bench::contender::program::Program;
use crate::bench::contender::{Contender, Missing, Programs, Trouble, cores_for};
use crate::bench::plan::Options;
use crate::bench::report::row::Sample;

/// Time limit of a run.
const PATIENCE: Duration = Duration::from_secs(60);
const BENCH: &str = "inversion";

/// Runs all rounds.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    crate::bench::rounds(BENCH, options, missing, |contender, cores| {
        once(contender, programs, cores)
    })
}

/// Runs one round: `p50` and `p99`.
pub fn once(
    contender: &Contender,
    programs: &Programs,
    cores: usize,
) -> Result<Vec<Sample>, Trouble> {
    let place = Place::new(BENCH)?;
    let start = |side: &str| {
        let mut contender = contender.clone();
        contender.args.push(format!("side={side}"));
        contender.args.extend(place.arguments());
        let command = contender.command(programs, BENCH, cores)?;
        let mut program = Program::start(&cores_for(cores), command)?;
        let said = program.hear_within(PATIENCE).map_err(|e| format!("the {side} side: {e}"))?;
        match said.strip_prefix("refused: ") {
            Some(why) => Err(Trouble::Refused(why.to_owned())),
            None if said == "ready" => Ok(program),
            None => Err(Trouble::Failed(format!("the {side} side printed {said:?}"))),
        }
    };
    // The server starts before anything keeps it from the core.
    let _server = start("server")?;
    let mut caller = start("caller")?;
    let _middle = start("middle")?;
    caller.tell("go")?;
    let mut identity = contender.identity(BENCH, cores);
    identity
        .keys
        .insert("inherit".to_owned(), contender.value("inherit").unwrap_or_default().to_owned());
    ["p50", "p99"]
        .map(|_| Ok(Sample::parse(&caller.hear_within(PATIENCE)?, &identity)?))
        .into_iter()
        .collect()
}
