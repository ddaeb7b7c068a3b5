//! Rows of a process that prints its samples and exits: `kumi-lab bench-child NAME KEY=VALUE...`.

#[cfg(test)]
mod tests;

use std::path::Path;

use super::super::child::{Cores, Running, Trouble};
use super::super::rows::Micro;
use super::{SOURCES, Sample, Scratch, Setting, child};

/// Number of sleeps in a trial of an event source.
const TRIAL: &str = "sleeps=20";

/// Measures several runs and returns the best.
pub fn measure(micro: &Micro, kumi: &Path, setting: &Setting) -> Result<Sample, Trouble> {
    let source = if micro.needs_source { Some(setting.source()?) } else { None };
    let mut sample = Sample::default();
    for _ in 0..micro.runs {
        let (lines, instructions) = once(micro, kumi, source)?;
        sample.note(micro.metric, micro.better, find_metric(&lines, micro.metric, micro.bench)?);
        sample = sample.counted(instructions, micro.operations);
    }
    Ok(sample)
}

/// Runs once. Returns the output and the instruction count.
fn once(
    micro: &Micro,
    kumi: &Path,
    source: Option<&str>,
) -> Result<(Vec<String>, Option<u64>), Trouble> {
    let directory = Scratch::in_memory()?;
    let key = source.map(|source| format!("events={source}"));
    let args: Vec<&str> = micro.keys.iter().copied().chain(key.as_deref()).collect();
    let mut command = child(kumi, &directory, micro.bench, &args, micro.vps);
    if let Some(source) = source {
        command.env("KUMI_EVENTS", source);
    }
    let mut running = Running::start(command, Cores::Last(micro.vps))?;
    Ok((running.finish()?, running.instructions()))
}

/// Value of a metric among the lines that `bench` printed.
pub fn find_metric(lines: &[String], metric: &str, bench: &str) -> Result<f64, Trouble> {
    find(lines, metric).map_err(|why| match why {
        Unread::Absent => Trouble::Missing(format!("{bench} printed no metric {metric:?}")),
        Unread::Nonsense(line) => {
            Trouble::Failed(format!("{bench} printed {line:?}, expected METRIC NUMBER UNIT"))
        }
    })
}

/// Reason why a metric was not found.
#[derive(Debug, PartialEq)]
enum Unread {
    Absent,
    Nonsense(String),
}

/// Value of a metric in lines of `METRIC VALUE UNIT [KEY=VALUE...]`. Lines of another runtime, such
/// as the floor beside `yield`, are ignored.
fn find(lines: &[String], metric: &str) -> Result<f64, Unread> {
    for line in lines {
        let mut words = line.split_whitespace();
        if words.next() != Some(metric) || line.contains(" runtime=") {
            continue;
        }
        let value = words.next().and_then(|word| word.parse::<f64>().ok());
        let unit = words.next();
        return match (value, unit) {
            (Some(value), Some(_)) if value.is_finite() && value >= 0.0 => Ok(value),
            _ => Err(Unread::Nonsense(line.clone())),
        };
    }
    Err(Unread::Absent)
}

/// The best event source that works with this build on this machine.
pub fn source(kumi: &Path) -> Result<String, Trouble> {
    let mut refusals = Vec::new();
    for source in SOURCES {
        let directory = Scratch::in_memory()?;
        let key = format!("events={source}");
        let mut command = child(kumi, &directory, "events", &["part=wakes", TRIAL, &key], 1);
        command.env("KUMI_EVENTS", source);
        match Running::start(command, Cores::Last(1)).and_then(|mut running| running.finish()) {
            Ok(_) => return Ok(source.to_owned()),
            Err(Trouble::Failed(why)) => return Err(Trouble::Failed(why)),
            Err(other) => refusals.push(other.to_string()),
        }
    }
    Err(Trouble::Refused(format!("no event source: {}", refusals.join("; "))))
}
