//! `remote`: calls from one machine to another, both on loopback, directly or through a relay with
//! a delay. Kumihimo's go from a program through two borders to a program; the rivals' go from one
//! program to the other. Also what a border costs that has nothing to do.

mod relay;
mod site;

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::bench::contender::pair::cpu_time;
use crate::bench::contender::program::Program;
use crate::bench::contender::{
    Contender, Missing, Programs, Runtime, Trouble, cores_for, output_on, own_cores, product,
};
use crate::bench::plan::Options;
use crate::bench::report::row::{Identity, Sample};
use crate::bench::runs::rpc::{Pair, Slice, WARM_UP_MS};

use relay::Relay;
use site::{Site, certificates};

const BENCH: &str = "remote";
const SLICE_MS: u64 = 500;
/// Name of the server's machine.
const SERVER: &str = "build7";
/// Callers of level 0 in `part=levels`.
const CROWD: usize = 64;
/// Machines of `part=ps`, and microprocesses of each.
const MACHINES: usize = 10;
const EACH: usize = 10_000;
/// Time for which idle borders are observed.
const IDLE: Duration = Duration::from_secs(5);
/// Time limit for the start of a border, and for the borders to find each other.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs all rounds.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let kumi = match product::kumi() {
        Ok(kumi) => kumi,
        Err(trouble) => {
            missing.note(BENCH, trouble);
            return Vec::new();
        }
    };
    crate::bench::rounds(BENCH, options, missing, |contender, cores| {
        match contender.value("part") {
            Some("idle") => return idle(contender, &kumi, cores),
            Some("levels") => return levels(contender, programs, &kumi, cores),
            Some("ps") => return list(contender, programs, &kumi, cores),
            _ => {}
        }
        let slice = match contender.runtime {
            Runtime::Kumihimo => over_borders(contender, programs, &kumi, cores)?,
            _ => directly(contender, programs, &kumi, cores)?,
        };
        samples(contender, cores, &slice)
    })
}

/// The time that each way takes longer than on loopback: half of the key `delay_us`.
fn delay(contender: &Contender) -> Result<Duration, String> {
    let text = contender.value("delay_us").unwrap_or("0");
    let both: u64 = text.parse().map_err(|_| format!("delay_us={text}: expected a number"))?;
    Ok(Duration::from_micros(both / 2))
}

fn over_borders(
    contender: &Contender,
    programs: &Programs,
    kumi: &Path,
    cores: usize,
) -> Result<Slice, Trouble> {
    let site = Site::start(kumi, cores, delay(contender)?, &[SERVER.to_owned()])?;
    let mut pair =
        Pair::begin(cores, |args| side(contender, &site, args).command(programs, BENCH, cores))?;
    pair.slice(WARM_UP_MS)?;
    pair.slice(SLICE_MS)
}

/// The contender of one side, on its machine: `args` say which side it is.
fn side(contender: &Contender, site: &Site, args: Vec<String>) -> Contender {
    let is_server = args.iter().any(|arg| arg == "side=server");
    let mut side = contender.clone();
    side.args.extend(args.into_iter().filter(|arg| !arg.starts_with("directory=")));
    if is_server {
        side.args.push(site.others[0].argument());
    } else {
        side.args.extend([site.here.argument(), format!("gate={SERVER}/bench")]);
    }
    side
}

/// Latency of calls of the highest level alone, and beside callers of the lowest one that saturate
/// the connection.
fn levels(
    contender: &Contender,
    programs: &Programs,
    kumi: &Path,
    cores: usize,
) -> Result<Vec<Sample>, Trouble> {
    let site = Site::start(kumi, cores, Duration::ZERO, &[SERVER.to_owned()])?;
    let many = format!("callers={CROWD}");
    let mut pair = Pair::begin(cores, |args| {
        let mut one = side(contender, &site, args);
        let is_server = one.value("side") == Some("server");
        one.args.extend(match is_server {
            true => [many.clone(), "level=0".to_owned()],
            false => ["callers=1".to_owned(), "level=63".to_owned()],
        });
        one.command(programs, BENCH, cores)
    })?;
    pair.slice(WARM_UP_MS)?;
    let alone = pair.slice(SLICE_MS)?;
    let place = format!("place={}", site.here.directory().display());
    let mut load = side(contender, &site, vec!["side=client".to_owned(), place]);
    load.args.extend([many, "level=0".to_owned()]);
    let mut load = Program::start(&cores_for(cores), load.command(programs, BENCH, cores)?)?;
    let hear = |load: &mut Program| {
        load.hear_within(PATIENCE).map_err(|e| format!("the callers of level 0: {e}"))
    };
    hear(&mut load)?;
    load.tell(&(WARM_UP_MS + 2 * SLICE_MS).to_string())?;
    pair.slice(WARM_UP_MS)?;
    let beside = pair.slice(SLICE_MS)?;
    hear(&mut load)?;
    let identity = identity(contender, cores);
    [("none", &alone), ("level-0", &beside)]
        .map(|(load, slice)| format!("null_p99 {} us level=63 load={load}", slice.p99))
        .iter()
        .map(|line| Ok(Sample::parse(line, &identity)?))
        .collect()
}

fn directly(
    contender: &Contender,
    programs: &Programs,
    kumi: &Path,
    cores: usize,
) -> Result<Slice, Trouble> {
    let delay = delay(contender)?;
    let relay = RefCell::new(None);
    let trouble = Cell::new(None);
    let begun = Pair::begin(cores, |args| {
        let mut side = contender.clone();
        let place = args.iter().find_map(|arg| arg.strip_prefix("place="));
        let place = Path::new(place.ok_or("a pair has a place")?).to_owned();
        if args.iter().any(|arg| arg == "side=server") {
            if let Err(why) = certificates(kumi, &place, &[SERVER.to_owned()]) {
                trouble.set(Some(why));
                return Err("no certificates".to_owned());
            }
        } else {
            let file = place.join("address");
            let at = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let at = at.parse().map_err(|e| format!("{at:?}: {e}"))?;
            let between = (!delay.is_zero()).then(|| Relay::start(at, delay)).transpose();
            let between = between.map_err(|e| format!("the relay: {e}"))?;
            let to = between.as_ref().map_or(at, Relay::at);
            relay.replace(between);
            side.args.push(format!("to={to}"));
        }
        side.args.extend(args);
        side.command(programs, BENCH, cores)
    });
    let mut pair = begun.map_err(|why| trouble.take().unwrap_or(why))?;
    pair.slice(WARM_UP_MS)?;
    pair.slice(SLICE_MS)
}

/// All keys of the contender's rows. A rival has the name of its transport.
fn identity(contender: &Contender, cores: usize) -> Identity {
    let mut identity = contender.identity(BENCH, cores);
    if let Some(transport) = contender.value("transport") {
        identity.runtime = transport.to_owned();
    }
    let keys = ["callers", "delay_us", "part"];
    let said =
        keys.iter().filter_map(|key| Some(((*key).to_owned(), contender.value(key)?.into())));
    identity.keys = said.collect();
    identity
}

fn samples(contender: &Contender, cores: usize, slice: &Slice) -> Result<Vec<Sample>, Trouble> {
    let identity = identity(contender, cores);
    [
        format!("null_p50 {} us", slice.p50),
        format!("null_p99 {} us", slice.p99),
        format!("calls {} 1/s", slice.calls / slice.seconds),
    ]
    .iter()
    .map(|line| Ok(Sample::parse(line, &identity)?))
    .collect()
}

/// CPU time and memory of two borders that are connected, and of which nothing is asked.
fn idle(contender: &Contender, kumi: &Path, cores: usize) -> Result<Vec<Sample>, Trouble> {
    let site = Site::start(kumi, cores, Duration::ZERO, &[SERVER.to_owned()])?;
    let borders = [site.here.id(), site.others[0].id()];
    let before = borders.map(cpu_time);
    std::thread::sleep(IDLE);
    let after = borders.map(cpu_time);
    let identity = identity(contender, cores);
    let mut samples = Vec::new();
    for (border, (before, after)) in borders.into_iter().zip(before.into_iter().zip(after)) {
        let used = after.saturating_sub(before) as f64 / IDLE.as_nanos() as f64;
        let memory = resident(border)?;
        for line in [format!("cpu {} %", used * 100.0), format!("rss {memory} bytes")] {
            samples.push(Sample::parse(&line, &identity)?);
        }
    }
    Ok(samples)
}

/// Time to list the microprocesses of ten machines by one command.
fn list(
    contender: &Contender,
    programs: &Programs,
    kumi: &Path,
    cores: usize,
) -> Result<Vec<Sample>, Trouble> {
    let names: Vec<String> = (0..MACHINES).map(|n| format!("build{}", 70 + n)).collect();
    let site = Site::start(kumi, cores, Duration::ZERO, &names)?;
    let mut crowds = Vec::new();
    for machine in &site.others {
        let mut crowd = contender.clone();
        crowd.args = vec!["part=crowd".to_owned(), machine.argument()];
        let mut program = Program::start(&own_cores(), crowd.command(programs, "control", 1)?)?;
        program.hear_within(PATIENCE).map_err(|e| format!("the microprocesses: {e}"))?;
        crowds.push(program);
    }
    let mut ps = Command::new(kumi);
    ps.args(["ps", "--machine", "all", "--json"]).env("KUMI_DIR", site.here.directory());
    let begun = Instant::now();
    let said = output_on(&cores_for(cores), &mut ps)?;
    let took = begun.elapsed().as_secs_f64();
    let listed = said.lines().count();
    if listed < MACHINES * EACH {
        return Err(format!("kumi ps listed {listed} microprocesses").into());
    }
    let line = format!("ps {took} s listed:={listed}");
    Ok(vec![Sample::parse(&line, &identity(contender, cores))?])
}

/// Resident memory of a process in bytes.
fn resident(pid: u32) -> Result<u64, String> {
    let file = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())
        .map(|kib: u64| kib << 10)
        .ok_or_else(|| format!("{file}: no VmRSS"))
}
