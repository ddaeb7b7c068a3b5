//! `unwrapped`: cost of waits that the runtime does not wrap, compared with kernel threads.

mod derived;

use std::process::Command;

use crate::bench::contender::program::Program;
use crate::bench::contender::{Contender, Missing, Programs, Runtime, Trouble, own_cores};
use crate::bench::plan::order::Order;
use crate::bench::plan::{self, Options};
use crate::bench::report::Note;
use crate::bench::report::row::Sample;

const BENCH: &str = "unwrapped";
/// Reduction of the workload without rivals and without `--full`.
const SHORT: &str = "share=10";

/// A control that is too noisy to be judged has at most this many times as many rounds.
const FURTHER: usize = 5;

/// Runs every cell round after round. In each round, every contender runs once, in an order drawn
/// from the seed. Where the control is wide after the last round, std runs on against itself: how
/// many rounds it has depends on the noise, not on what the ratio is.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let cells = plan::cells(BENCH, options);
    let mut order = Order::new(options.seed);
    let mut samples = Vec::new();
    // Contenders that failed once, by cell and number, and refused sources.
    let (mut failed, mut refused) = (Vec::new(), Vec::new());
    for round in 0..options.runs * FURTHER {
        for (c, cell) in cells.iter().enumerate() {
            let work = derived::label_of(|key| cell.contenders[0].value(key));
            let is_further = round >= options.runs;
            if is_further && !derived::is_control_wide(&samples, &work) {
                continue;
            }
            for i in order.round(cell.contenders.len()) {
                let contender = &cell.contenders[i];
                if is_further && contender.runtime != Runtime::Std {
                    continue;
                }
                let source = source_of(contender);
                if failed.contains(&(c, i))
                    || source.as_ref().is_some_and(|source| refused.contains(source))
                {
                    continue;
                }
                let name = contender.describe(BENCH, cell.vps);
                if round == 0 {
                    eprintln!("  {name}");
                }
                match once(contender, programs, cell.vps, plan::is_whole(options)) {
                    Ok(some) => samples.extend(some),
                    Err(trouble) => {
                        failed.push((c, i));
                        match (source, &trouble) {
                            // The same for every workload, so it is reported once.
                            (Some(source), Trouble::Refused(why))
                                if why.starts_with(event_source(&source)) =>
                            {
                                missing.note(&format!("kumihimo {BENCH} {source}"), trouble);
                                refused.push(source);
                            }
                            _ => missing.note(&name, trouble),
                        }
                    }
                }
            }
        }
    }
    let derived = derived::derive(&samples);
    samples.extend(derived);
    samples
}

/// Explains why a short run has no figures.
pub fn notes(options: &Options) -> Vec<Note> {
    if plan::is_whole(options) {
        return Vec::new();
    }
    let text = "A tenth of each workload with the default event source: no figure is evaluated. With --rivals: the full workloads, compared with std.";
    vec![Note::Text(text.to_owned())]
}

/// `events=bpf way=thread`: the keys that identify a contender's event source.
fn source_of(contender: &Contender) -> Option<String> {
    let events = contender.value("events")?;
    let way = contender.value("way").map(|way| format!(" way={way}")).unwrap_or_default();
    Some(format!("events={events}{way}"))
}

/// The value of `events` in [`source_of`], with which a refusal of the source begins.
fn event_source(source: &str) -> &str {
    let events = source.split(' ').next().unwrap_or_default();
    events.strip_prefix("events=").unwrap_or_default()
}

/// Runs a contender once, with its peer.
fn once(
    contender: &Contender,
    programs: &Programs,
    vps: usize,
    whole: bool,
) -> Result<Vec<Sample>, Trouble> {
    let peer = contender.value("work").and_then(plan::peer_of).map(Peer::start).transpose()?;
    let port = peer.as_ref().map(|peer| peer.port.clone());
    let short = if whole { None } else { Some(SHORT.to_owned()) };
    let more: Vec<String> = port.into_iter().chain(short).collect();
    contender.run_with(programs, BENCH, vps, &more)
}

/// Process with which the bodies communicate. Ended when dropped.
struct Peer {
    _program: Program,
    /// The peer's `port=PORT`.
    port: String,
}

impl Peer {
    fn start(kind: &str) -> Result<Peer, Trouble> {
        let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
        command.args(["bench-peer", kind]);
        let mut program = Program::start(&own_cores(), command)?;
        let said = program.hear().map_err(|e| format!("the peer: {e}"))?;
        if let Some(why) = said.strip_prefix("refused: ") {
            return Err(Trouble::Refused(why.to_owned()));
        }
        let port = said
            .strip_prefix("ready ")
            .ok_or_else(|| format!("the peer printed {said:?}"))?
            .to_owned();
        Ok(Peer { _program: program, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_named_by_event_source_and_method() {
        let with = |args: &[&str]| {
            let args = args.iter().map(|&arg| arg.to_owned()).collect();
            let runtime = Runtime::Kumihimo;
            source_of(&Contender {
                runtime,
                variant: "full",
                queue: "ring".into(),
                args,
                at_most: 1,
            })
        };
        assert_eq!(with(&["work=pipe", "events=perf"]).as_deref(), Some("events=perf"));
        assert_eq!(with(&["events=bpf", "way=switch"]).as_deref(), Some("events=bpf way=switch"));
        assert_eq!(with(&["work=pipe"]), None);
        assert_eq!(["events=perf", "events=bpf way=switch"].map(event_source), ["perf", "bpf"]);
    }
}
