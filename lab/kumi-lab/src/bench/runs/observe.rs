//! `observe`: cost of the programs that show where time goes. `top_once`: time for one screen;
//! `top_cpu`: CPU time of `kumi top` and of the watched address space, by 1,000 and 100,000
//! microprocesses with names; `web_cpu`, `web_page`: the same of `kumi web`, and the bytes of its
//! first page; `profiled`: cost for a server of `kumi profile`.

mod page;

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::control::{costs, start, top};
use crate::bench::contender::directory::Directory;
use crate::bench::contender::pair::{Pair, cpu_time};
use crate::bench::contender::{Contender, Missing, Programs, Trouble};
use crate::bench::plan::order::Order;
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;
use crate::bench::report::stats::median_interval;
use page::Page;

const BENCH: &str = "observe";
/// Numbers of parked microprocesses.
const COUNTS: [usize; 2] = [1_000, 100_000];
/// Time over which the CPU time of `kumi top` is measured: several updates, one a second.
const WINDOW: Duration = Duration::from_secs(4);
/// Time for the first updates, which open connections and load programs.
const WARM_UP: Duration = Duration::from_millis(1_200);
/// Number of looks of `kumi web` over which its CPU time is measured, one a second.
const LOOKS: usize = 4;
/// Number of tabs that show the same.
const TABS: [usize; 2] = [1, 50];
/// Kinds and rates of profiles. The cost of the highest rate is large enough to be measured; that
/// of one sample follows from it.
const PROFILES: [(&str, u32); 3] = [("cpu", 99), ("cpu", 990), (OFF_CPU, 10)];
const OFF_CPU: &str = "off-cpu";
/// The key that unfolds an address space: right.
const UNFOLD: &str = "\x1b[C";
const CONNECTIONS: usize = 100;
const SLICE_MS: u64 = 1_000;
/// Number of pairs of slices for each requested run and profile.
const PAIRS: usize = 3;
/// Name of the kernel thread in the server that profiles it.
const PROFILER: &str = "kumi-profile";
/// Time limit for the beginning and for the end of a profile.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs all parts.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let mut samples = Vec::new();
    for count in COUNTS {
        eprintln!("  top count={count}");
        match watch(options, programs, count) {
            Ok(some) => samples.extend(some),
            Err(trouble) => missing.note(&format!("{BENCH} top count={count}"), trouble),
        }
    }
    for count in COUNTS {
        eprintln!("  web count={count}");
        match serve(options, programs, count) {
            Ok(some) => samples.extend(some),
            Err(trouble) => missing.note(&format!("{BENCH} web count={count}"), trouble),
        }
    }
    for (kind, rate) in PROFILES {
        eprintln!("  profiled profile={kind} rate={rate}");
        match profiled(options, programs, kind, rate) {
            Ok(some) => samples.extend(some),
            Err(trouble) => {
                missing.note(&format!("{BENCH} profiled profile={kind} rate={rate}"), trouble);
            }
        }
    }
    samples
}

fn sample(contender: &Contender, line: &str) -> Result<Sample, Trouble> {
    Ok(Sample::parse(line, &contender.identity(BENCH, 1))?)
}

/// `kumi top` over `count` parked microprocesses: one screen as text, and some updates on a
/// terminal.
fn watch(options: &Options, programs: &Programs, count: usize) -> Result<Vec<Sample>, Trouble> {
    let directory = Directory::new(BENCH)?;
    let mut contender = plan::control(options, "crowd", &directory.argument());
    contender.args.extend([format!("count={count}"), "names=each".to_owned()]);
    let (crowd, _) = start(&contender, programs, 1)?;
    let mut samples = Vec::new();
    for _ in 0..options.runs {
        let begun = Instant::now();
        once(&directory)?;
        let took = begun.elapsed().as_secs_f64();
        samples.push(sample(&contender, &format!("top_once {took} s count={count}"))?);

        let mut terminal = top(&directory)?;
        thread::sleep(WARM_UP);
        // An address space with many rows is folded at first.
        terminal.press(UNFOLD)?;
        thread::sleep(WARM_UP);
        let drawn = terminal.drawn();
        let shares = shares([terminal.id(), crowd.id()], || {
            thread::sleep(WINDOW);
            Ok(())
        })?;
        if terminal.drawn() == drawn {
            return Err("kumi top drew nothing".into());
        }
        for (of, share) in shares {
            let line = format!("top_cpu {share} % count={count} of={of}");
            samples.push(sample(&contender, &line)?);
        }
    }
    Ok(samples)
}

/// `kumi web` over `count` parked microprocesses: the bytes of the first page, and some looks for a
/// page in one tab and in several.
fn serve(options: &Options, programs: &Programs, count: usize) -> Result<Vec<Sample>, Trouble> {
    let directory = Directory::new(BENCH)?;
    let mut contender = plan::control(options, "crowd", &directory.argument());
    contender.args.extend([format!("count={count}"), "names=each".to_owned()]);
    let (crowd, _) = start(&contender, programs, 1)?;
    let mut samples = Vec::new();
    for _ in 0..options.runs {
        let mut page = Page::open(&directory)?;
        samples.push(sample(&contender, &format!("web_page {} bytes count={count}", page.first))?);
        for tabs in TABS {
            let _others = page.tabs(tabs - 1)?;
            page.follow(2)?;
            for (of, share) in shares([page.id(), crowd.id()], || page.follow(LOOKS))? {
                let line = format!("web_cpu {share} % count={count} tabs={tabs} of={of}");
                samples.push(sample(&contender, &line)?);
            }
        }
    }
    Ok(samples)
}

/// Returns how much of a core the watching and the watched process use meanwhile, in per cent.
fn shares(
    processes: [u32; 2],
    meanwhile: impl FnOnce() -> Result<(), Trouble>,
) -> Result<[(&'static str, f64); 2], Trouble> {
    let (before, begun) = (processes.map(cpu_time), Instant::now());
    meanwhile()?;
    let (after, took) = (processes.map(cpu_time), begun.elapsed().as_nanos() as f64);
    let share = |n: usize| 100.0 * after[n].saturating_sub(before[n]) as f64 / took;
    Ok([("watcher", share(0)), ("watched", share(1))])
}

/// Prints one screen, sorted by CPU time, and discards it.
fn once(directory: &Directory) -> Result<(), Trouble> {
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.args(["top", "--once"]).env("KUMI_DIR", directory.path());
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("kumi top: {e}"))?;
    if !output.status.success() || output.stdout.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("kumi top: {}: {said}", output.status).into());
    }
    Ok(())
}

/// One echo server and its load, in slices with and without `kumi profile`, in an order drawn from
/// the seed.
fn profiled(
    options: &Options,
    programs: &Programs,
    kind: &str,
    rate: u32,
) -> Result<Vec<Sample>, Trouble> {
    let directory = Directory::new(BENCH)?;
    let contender = plan::control(options, "watched", &directory.argument());
    let mut pair = Pair::start(contender.clone(), programs, CONNECTIONS)?;
    let mut order = Order::new(options.seed);
    let keys = format!("profile={kind} rate={rate}");
    let mut ratios: Vec<(&str, Vec<f64>)> = Vec::new();
    for _ in 0..options.runs * PAIRS {
        let (mut slices, mut profiling) = ([None; 2], 0);
        for with in order.round(2) {
            let profile = match with {
                1 => Some(Profile::begin(&directory, &pair, kind, rate)?),
                _ => None,
            };
            let before = pair.server.cpu_time_of(PROFILER);
            slices[with] = Some(pair.slice(SLICE_MS)?);
            if let Some(profile) = profile {
                profiling = pair.server.cpu_time_of(PROFILER).saturating_sub(before);
                profile.end()?;
            }
        }
        let [Some(without), Some(with)] = slices else { return Err("one slice each".into()) };
        // Without the profiler's own thread there is only the handler in the server's threads.
        let profiler = ("profiler", 1.0 + profiling as f64 / (with.cpu - profiling as f64));
        for (of, ratio) in costs(&without, &with).into_iter().chain([profiler]) {
            match ratios.iter_mut().find(|(known, _)| *known == of) {
                Some((_, all)) => all.push(ratio),
                None => ratios.push((of, vec![ratio])),
            }
        }
    }
    let mut samples = Vec::new();
    for (of, all) in ratios {
        for ratio in &all {
            let line = format!("profiled {ratio} ratio of={of} {keys}");
            samples.push(sample(&contender, &line)?);
        }
        let Some((low, high)) = median_interval(&all) else { continue };
        for (metric, bound) in [("profiled_low", low), ("profiled_high", high)] {
            let line = format!("{metric} {bound} ratio of={of} {keys}");
            samples.push(sample(&contender, &line)?);
        }
    }
    Ok(samples)
}

/// A running `kumi profile`, whose result is discarded.
struct Profile(Child);

impl Profile {
    /// Starts the command and waits until the server profiles itself.
    fn begin(
        directory: &Directory,
        pair: &Pair,
        kind: &str,
        rate: u32,
    ) -> Result<Profile, Trouble> {
        let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
        let rate = format!("--rate={rate}");
        command.args(["profile", &rate, "--seconds=60", "--format=folded", "--output=/dev/null"]);
        if kind == OFF_CPU {
            command.arg("--off-cpu");
        }
        command.env("KUMI_DIR", directory.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|e| format!("kumi profile: {e}"))?;
        let mut profile = Profile(child);
        let begun = Instant::now();
        while !pair.server.has_thread(PROFILER) {
            if let Ok(Some(status)) = profile.0.try_wait() {
                return Err(format!("kumi profile: {status}").into());
            }
            if begun.elapsed() > PATIENCE {
                return Err("kumi profile did not begin".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        // It opens an event for each kernel thread.
        thread::sleep(Duration::from_millis(50));
        Ok(profile)
    }

    /// Ends the profile as Ctrl-C does, and waits for the command.
    fn end(mut self) -> Result<(), Trouble> {
        // The child has not been reaped, so the ID is still its own.
        kill_process(Pid::from_child(&self.0), Signal::INT).map_err(|e| e.to_string())?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            match self.0.try_wait().map_err(|e| e.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("kumi profile: {status}").into()),
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
        Err("kumi profile did not end".into())
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
