//! `control`: time to stop a microprocess (`suspend_*`), time to list 100,000 microprocesses of ten
//! address spaces (`ps_100k`), and cost for a server of being observed by `kumi top` (`watched`).

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::Lateness;
use kumihimo_machine::client::{Error, Machine, Neighbour};
use kumihimo_machine::handler::{Action, Done, State};
use kumihimo_resource::id::Id;

use crate::bench::contender::directory::Directory;
use crate::bench::contender::pair::{Pair, Slice};
use crate::bench::contender::program::Program;
use crate::bench::contender::terminal::Terminal;
use crate::bench::contender::{Contender, Missing, Programs, Trouble, own_cores};
use crate::bench::plan::order::Order;
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;
use kumi::ask::each;

const BENCH: &str = "control";
/// Number of requests to suspend in a run.
const ROUNDS: usize = 1_000;
/// Time that the microprocess runs before the next request.
const BETWEEN: Duration = Duration::from_millis(1);
/// One VP computes, the other one is idle.
const SUSPEND_VPS: usize = 2;
const SPACES: usize = 10;
const EACH: usize = 10_000;
const CONNECTIONS: usize = 1_000;
/// Long enough for at least one query of `kumi top`, which makes one a second.
const SLICE_MS: u64 = 1_500;
/// Number of pairs of slices for each requested run: a slice is short, and the difference is small.
const PAIRS: usize = 4;

type Measure = fn(&Options, &Programs) -> Result<Vec<Sample>, Trouble>;

/// Name of the kernel thread in the server that handles requests.
const ANSWERS: &str = "kumi-control";

/// Runs all three parts.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let mut samples = Vec::new();
    let parts: [(&str, Measure); 4] = [
        ("suspend by=thread", within),
        ("suspend by=machine", outside),
        ("ps_100k", list),
        ("watched", watched),
    ];
    for (what, measure) in parts {
        eprintln!("  {what}");
        match measure(options, programs) {
            Ok(some) => samples.extend(some),
            Err(trouble) => missing.note(&format!("{BENCH} {what}"), trouble),
        }
    }
    samples
}

fn sample(contender: &Contender, vps: usize, line: &str) -> Result<Sample, Trouble> {
    Ok(Sample::parse(line, &contender.identity(BENCH, vps))?)
}

/// Starts a part of Kumihimo's side, which lives until it is dropped. Returns it with the last word
/// of its ready line.
pub(super) fn start(
    contender: &Contender,
    programs: &Programs,
    vps: usize,
) -> Result<(Program, String), Trouble> {
    let mut program = Program::start(&own_cores(), contender.command(programs, BENCH, vps)?)?;
    let said = program.hear()?;
    let (_, word) = said.rsplit_once(' ').ok_or_else(|| format!("unexpected output {said:?}"))?;
    Ok((program, word.to_owned()))
}

/// Suspension by a microprocess of the same address space.
fn within(options: &Options, programs: &Programs) -> Result<Vec<Sample>, Trouble> {
    let directory = Directory::new(BENCH)?;
    let contender = plan::control(options, "suspend", &directory.argument());
    let mut samples = Vec::new();
    for _ in 0..options.runs {
        samples.extend(contender.run_with(
            programs,
            BENCH,
            SUSPEND_VPS,
            &[format!("rounds={ROUNDS}")],
        )?);
    }
    Ok(samples)
}

fn asked<T>(answer: Result<T, Error>) -> Result<T, Trouble> {
    answer.map_err(|e| Trouble::Failed(e.to_string()))
}

/// Suspension from another process, like `kumi suspend`. The reply arrives when the microprocess
/// has stopped.
fn outside(options: &Options, programs: &Programs) -> Result<Vec<Sample>, Trouble> {
    let directory = Directory::new(BENCH)?;
    let contender = plan::control(options, "target", &directory.argument());
    let (_target, word) = start(&contender, programs, SUSPEND_VPS)?;
    let id: Id = word.parse().map_err(|e| format!("{word}: {e}"))?;
    let mut neighbour = asked(directory.machine()?.neighbour(id.location().space()))?;
    let mut samples = Vec::new();
    for _ in 0..options.runs {
        let (mut late, mut other) = (Lateness::default(), 0);
        for _ in 0..ROUNDS {
            until_it_runs(&mut neighbour, id)?;
            let begun = Instant::now();
            let became = asked(neighbour.act(id, Action::Suspend))?;
            late.record(begun.elapsed());
            other += usize::from(became != Done::Now);
            asked(neighbour.act(id, Action::Resume))?;
        }
        for (metric, q) in [("suspend_p50", 0.5), ("suspend_p99", 0.99), ("suspend_max", 1.0)] {
            let line = format!("{metric} {} us by=machine not_at_once:={other}", late.us(q));
            samples.push(sample(&contender, SUSPEND_VPS, &line)?);
        }
    }
    Ok(samples)
}

fn until_it_runs(neighbour: &mut Neighbour, id: Id) -> Result<(), Trouble> {
    thread::sleep(BETWEEN);
    while asked(neighbour.microprocess(id))?.state != State::Running {
        thread::sleep(BETWEEN);
    }
    Ok(())
}

/// Lists address spaces one after the other; all in parallel, like `kumi ps`; and with that
/// command.
fn list(options: &Options, programs: &Programs) -> Result<Vec<Sample>, Trouble> {
    let directory = Directory::new(BENCH)?;
    let contender = plan::control(options, "crowd", &directory.argument());
    let mut crowds = Vec::new();
    for _ in 0..SPACES {
        crowds.push(start(&contender, programs, 1)?.0);
    }
    let machine = directory.machine()?;
    let mut samples = Vec::new();
    for _ in 0..options.runs {
        for (how, list) in [("in-turn", in_turn as fn(&Machine) -> _), ("at-once", at_once)] {
            let begun = Instant::now();
            let listed = list(&machine)?;
            let took = begun.elapsed().as_secs_f64();
            if listed < SPACES * EACH {
                return Err(format!(
                    "{listed} microprocesses were listed, but there are more than {}",
                    SPACES * EACH
                )
                .into());
            }
            samples.push(sample(
                &contender,
                1,
                &format!("ps_100k {took} s how={how} listed:={listed}"),
            )?);
        }
        let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
        command
            .args(["ps", "--json"])
            .env("KUMI_DIR", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let begun = Instant::now();
        let status = command.status().map_err(|e| format!("kumi ps: {e}"))?;
        let took = begun.elapsed().as_secs_f64();
        if !status.success() {
            return Err(format!("kumi ps: {status}").into());
        }
        samples.push(sample(&contender, 1, &format!("ps_100k {took} s how=command"))?);
    }
    Ok(samples)
}

fn in_turn(machine: &Machine) -> Result<usize, Trouble> {
    let mut listed = 0;
    for mut space in asked(machine.spaces())? {
        listed += asked(space.microprocesses())?.len();
    }
    Ok(listed)
}

fn at_once(machine: &Machine) -> Result<usize, Trouble> {
    let lists = each(asked(machine.spaces())?, Neighbour::microprocesses);
    lists.into_iter().map(|(_, list)| Ok(asked(list)?.len())).sum()
}

/// One server and its load, in slices with and without `kumi top`, in an order drawn from the seed.
fn watched(options: &Options, programs: &Programs) -> Result<Vec<Sample>, Trouble> {
    let directory = Directory::new(BENCH)?;
    let contender = plan::control(options, "watched", &directory.argument());
    let mut pair = Pair::start(contender.clone(), programs, CONNECTIONS)?;
    let mut order = Order::new(options.seed);
    let mut samples = Vec::new();
    for _ in 0..options.runs * PAIRS {
        let (mut slices, mut answering) = ([None; 2], 0);
        for with in order.round(2) {
            let top = if with == 1 { Some(top(&directory)?) } else { None };
            let drawn = top.as_ref().map(Terminal::drawn);
            let before = pair.server.cpu_time_of(ANSWERS);
            slices[with] = Some(pair.slice(SLICE_MS)?);
            if with == 1 {
                answering = pair.server.cpu_time_of(ANSWERS).saturating_sub(before);
            }
            if top.as_ref().map(Terminal::drawn).is_some_and(|now| drawn == Some(now)) {
                return Err("kumi top drew nothing".into());
            }
        }
        let [Some(without), Some(with)] = slices else { return Err("one slice each".into()) };
        // Time spent on replies alone, which is less noisy than the difference between two slices.
        let answers = ("answers", 1.0 + answering as f64 / (with.cpu - answering as f64));
        for (of, cost) in costs(&without, &with).into_iter().chain([answers]) {
            samples.push(sample(&contender, 1, &format!("watched {cost} ratio of={of}"))?);
        }
    }
    Ok(samples)
}

/// Starts `kumi top` on a terminal.
pub(super) fn top(directory: &Directory) -> Result<Terminal, Trouble> {
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.arg("top").env("KUMI_DIR", directory.path());
    Ok(Terminal::start(command)?)
}

/// Cost of a request with `kumi top` relative to without: in elapsed time, and in the server's CPU
/// time. Nothing if no request was answered.
pub(super) fn costs(without: &Slice, with: &Slice) -> Vec<(&'static str, f64)> {
    let costs = [
        ("rps", without.rate() / with.rate()),
        ("cpu", (with.cpu / with.all) / (without.cpu / without.all)),
    ];
    costs.into_iter().filter(|(_, cost)| cost.is_finite() && *cost > 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_of_observation_is_computed_per_request() {
        let slice = |requests, cpu| Slice {
            requests,
            seconds: 1.0,
            p50: 0.0,
            p99: 0.0,
            p999: 0.0,
            all: requests,
            cpu,
            took: 1.0,
        };
        let told = costs(&slice(1_000.0, 5_000.0), &slice(500.0, 5_000.0));
        assert_eq!(told, [("rps", 2.0), ("cpu", 2.0)]);
        assert!(costs(&slice(0.0, 0.0), &slice(10.0, 10.0)).is_empty());
    }

    #[test]
    fn empty_directory_lists_no_process() {
        let directory = Directory::new("control-test").unwrap();
        let machine = directory.machine().unwrap();
        assert_eq!((in_turn(&machine).unwrap(), at_once(&machine).unwrap()), (0, 0));
    }
}
