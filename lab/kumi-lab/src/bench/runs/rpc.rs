//! `rpc`: calls from one process to another. Each pair is started, warmed up, measured over one
//! slice and ended, one pair at a time, because some of them spin.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use kumihimo_bench_kit::{Entries, kernel_threads, raise_descriptors};

use crate::bench::contender::pair::cpu_time;
use crate::bench::contender::place::Place;
use crate::bench::contender::program::Program;
use crate::bench::contender::{Contender, Missing, Programs, Runtime, Trouble, cores_for};
use crate::bench::plan::Options;
use crate::bench::report::row::{Identity, Sample};
use crate::bench::report::stats::summary;

const BENCH: &str = "rpc";
pub const WARM_UP_MS: u64 = 60;
const SLICE_MS: u64 = 250;
const FULL_SLICE_MS: u64 = 500;
/// Duration of a counted slice. Counting slows down every system call of the machine, so nothing is
/// timed meanwhile.
const COUNTED_MS: u64 = 60;
/// Time limit of a slice; a longer one has lost a call.
const PATIENCE: Duration = Duration::from_secs(20);
/// Placement in rows with the better placement of each contender.
const BEST: &str = "best";
/// Metrics that depend on the placement, and whether higher is better.
const BY_PLACEMENT: [(&str, bool); 3] = [("null_p50", false), ("null_p99", false), ("calls", true)];

/// Runs all rounds, and determines the best placement of each contender.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    raise_descriptors();
    let slice_ms = if options.full { FULL_SLICE_MS } else { SLICE_MS };
    let uncounted = RefCell::new(None);
    let mut samples = crate::bench::rounds(BENCH, options, missing, |contender, cores| {
        let mut pair = Pair::start(contender, programs, cores)?;
        pair.slice(WARM_UP_MS)?;
        let slice = pair.slice(slice_ms)?;
        let entries = match pair.entries(COUNTED_MS) {
            Ok(entries) => Some(entries),
            Err(Trouble::Refused(why)) => {
                uncounted.replace(Some(why));
                None
            }
            Err(failed) => return Err(failed),
        };
        Ok(slice.samples(contender, cores, entries)?)
    });
    if let Some(why) = uncounted.into_inner() {
        missing.note("rpc entries", Trouble::Refused(why));
    }
    let best = best(&samples);
    samples.extend(best);
    samples
}

/// A caller and a server.
pub struct Pair {
    // Dropped first, so that the server sees the end of its callers.
    client: Program,
    server: Program,
    /// Processes that work for the server, such as a separate daemon.
    beside: Vec<u32>,
    _place: Place,
}

/// Result of a slice.
pub struct Slice {
    pub calls: f64,
    pub seconds: f64,
    /// Latency percentiles of a call in microseconds.
    pub p50: f64,
    pub p99: f64,
    /// CPU time in nanoseconds.
    server_cpu: f64,
    client_cpu: f64,
    switches: f64,
}

impl Pair {
    pub fn start(
        contender: &Contender,
        programs: &Programs,
        cores: usize,
    ) -> Result<Pair, Trouble> {
        Pair::begin(cores, |more| {
            let mut contender = contender.clone();
            contender.args.extend(more);
            contender.command(programs, BENCH, cores)
        })
    }

    /// Starts any programs with this protocol. `command` receives the arguments of each side.
    pub fn begin(
        cores: usize,
        command: impl Fn(Vec<String>) -> Result<Command, String>,
    ) -> Result<Pair, Trouble> {
        let place = Place::new(BENCH)?;
        let start = |side: &str| {
            let side_and_place =
                [format!("side={side}")].into_iter().chain(place.arguments()).collect();
            let mut program = Program::start(&cores_for(cores), command(side_and_place)?)?;
            let said = program.hear_within(PATIENCE).map_err(|e| format!("the {side}: {e}"))?;
            if let Some(why) = said.strip_prefix("refused: ") {
                return Err(Trouble::Refused(why.to_owned()));
            }
            let beside =
                said.strip_prefix("ready").ok_or_else(|| format!("the {side} printed {said:?}"))?;
            let beside: Vec<u32> =
                beside.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
            Ok((program, beside))
        };
        let (server, beside) = start("server")?;
        let (client, _) = start("client")?;
        Ok(Pair { client, server, beside, _place: place })
    }

    fn servers(&self) -> impl Iterator<Item = u32> {
        self.beside.iter().copied().chain([self.server.id()])
    }

    pub fn slice(&mut self, ms: u64) -> Result<Slice, Trouble> {
        let server_cpu = |pair: &Pair| pair.servers().map(cpu_time).sum::<u64>();
        let switched =
            |pair: &Pair| pair.servers().chain([pair.client.id()]).map(switches).sum::<u64>();
        let before = (server_cpu(self), cpu_time(self.client.id()), switched(self));
        self.client.tell(&ms.to_string()).map_err(|e| format!("the client: {e}"))?;
        let said = self.client.hear_within(PATIENCE).map_err(|e| format!("the client: {e}"))?;
        let numbers: Vec<f64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[calls, seconds, p50, p99] = numbers.as_slice() else {
            return Err(format!("the client printed {said:?}").into());
        };
        if calls < 1.0 {
            return Err("no call was answered".into());
        }
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        Ok(Slice {
            calls,
            seconds,
            p50,
            p99,
            server_cpu: since(server_cpu(self), before.0),
            client_cpu: since(cpu_time(self.client.id()), before.1),
            switches: since(switched(self), before.2),
        })
    }

    /// Number of system calls of both sides for each call, measured in a separate slice.
    fn entries(&mut self, ms: u64) -> Result<f64, Trouble> {
        let all = self.servers().chain([self.client.id()]);
        let counted = all.map(|pid| Entries::of(pid).map_err(|e| Trouble::Refused(e.to_string())));
        let counted = counted.collect::<Result<Vec<_>, _>>()?;
        let count = || {
            counted
                .iter()
                .map(|one| one.count().map_err(|e| format!("entries: {e}")))
                .sum::<Result<u64, _>>()
        };
        let before = count()?;
        let slice = self.slice(ms)?;
        Ok((count()? - before) as f64 / slice.calls)
    }
}

/// Number of context switches of a process's kernel threads so far, voluntary and involuntary.
pub fn switches(pid: u32) -> u64 {
    let of = |thread: i32| {
        let status =
            fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).unwrap_or_default();
        let lines = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
        lines.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum::<u64>()
    };
    kernel_threads(pid).unwrap_or_default().into_iter().map(of).sum()
}

impl Slice {
    fn samples(
        &self,
        contender: &Contender,
        cores: usize,
        entries: Option<f64>,
    ) -> Result<Vec<Sample>, String> {
        let each = |all: f64| all / self.calls;
        let rows = [
            ("null_p50", Some(self.p50), "us"),
            ("null_p99", Some(self.p99), "us"),
            ("calls", Some(self.calls / self.seconds), "1/s"),
            ("server_cpu", Some(each(self.server_cpu) / 1e3), "us"),
            ("client_cpu", Some(each(self.client_cpu) / 1e3), "us"),
            ("switches", Some(each(self.switches)), "1"),
            ("entries", entries, "1"),
        ];
        let identity = identity(contender, cores);
        rows.into_iter()
            .filter_map(|(metric, value, unit)| {
                Some(Sample::parse(&format!("{metric} {} {unit}", value?), &identity))
            })
            .collect()
    }
}

/// All keys of the contender's rows. A rival has the name of its transport.
fn identity(contender: &Contender, cores: usize) -> Identity {
    let mut identity = contender.identity(BENCH, cores);
    if contender.runtime == Runtime::Rpc {
        identity.runtime = contender.value("transport").unwrap_or_default().to_owned();
    }
    let keys = ["callers", "bytes", "placement", "check", "by", "as"];
    let said =
        keys.iter().filter_map(|key| Some(((*key).to_owned(), contender.value(key)?.to_owned())));
    identity.keys = said.chain([("cores".to_owned(), cores.to_string())]).collect();
    identity
}

/// For each contender, the row with the best median over all placements and numbers of cores. The
/// note `is` names its placement and cores.
fn best(samples: &[Sample]) -> Vec<Sample> {
    let cores = samples.iter().map(|s| s.identity.vps).max().unwrap_or(1);
    // Rows that differ only in the placement.
    let mut groups: BTreeMap<Identity, BTreeMap<Identity, Vec<&Sample>>> = BTreeMap::new();
    for sample in samples
        .iter()
        .filter(|s| BY_PLACEMENT.iter().any(|(metric, _)| s.identity.metric == *metric))
    {
        let mut group = sample.identity.clone();
        group.vps = cores;
        group.keys.insert("cores".to_owned(), cores.to_string());
        group.keys.insert("placement".to_owned(), BEST.to_owned());
        groups.entry(group).or_default().entry(sample.identity.clone()).or_default().push(sample);
    }
    let median = |samples: &[&Sample]| {
        let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
        summary(&values).map_or(f64::NAN, |s| s.median)
    };
    let mut best = Vec::new();
    for (group, rows) in groups {
        let more = BY_PLACEMENT.contains(&(group.metric.as_str(), true));
        let rows = rows.into_iter().map(|(row, samples)| (median(&samples), row, samples));
        let Some((_, row, samples)) =
            rows.min_by(|a, b| if more { b.0.total_cmp(&a.0) } else { a.0.total_cmp(&b.0) })
        else {
            continue;
        };
        let is = format!("{}/{}", row.keys["placement"], row.keys["cores"]);
        best.extend(samples.into_iter().map(|sample| {
            let mut sample = Sample { identity: group.clone(), ..sample.clone() };
            sample.notes.insert("is".to_owned(), is.clone());
            sample
        }));
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(transport: &str, placement: &str) -> Contender {
        let line = format!(
            "callers=1 bytes=64 placement={placement} check=whole by=copy as=threads transport={transport}"
        );
        let args = line.split(' ').map(str::to_owned).collect();
        Contender { runtime: Runtime::Rpc, variant: "-", queue: "-".into(), args, at_most: 1 }
    }

    fn slice(p50: f64, calls: f64) -> Slice {
        Slice {
            calls,
            seconds: 0.5,
            p50,
            p99: 2.0 * p50,
            server_cpu: 2e6,
            client_cpu: 1e6,
            switches: 10.0,
        }
    }

    #[test]
    fn rows_have_every_key_and_the_times_of_a_call() {
        let samples =
            slice(5.0, 1_000.0).samples(&contender("futex", "spin"), 2, Some(4.0)).unwrap();
        let values: Vec<_> =
            samples.iter().map(|s| (s.identity.metric.as_str(), s.value)).collect();
        let expected = [
            ("null_p50", 5.0),
            ("null_p99", 10.0),
            ("calls", 2_000.0),
            ("server_cpu", 2.0),
            ("client_cpu", 1.0),
            ("switches", 0.01),
            ("entries", 4.0),
        ];
        assert_eq!(values, expected);
        for sample in &samples {
            let keys: Vec<_> = sample.identity.keys.keys().map(String::as_str).collect();
            assert_eq!(keys, ["as", "by", "bytes", "callers", "check", "cores", "placement"]);
            assert_eq!((sample.identity.runtime.as_str(), sample.identity.vps), ("futex", 2));
        }
        let uncounted = slice(5.0, 1.0).samples(&contender("futex", "spin"), 2, None).unwrap();
        assert!(uncounted.iter().all(|s| s.identity.metric != "entries"));
    }

    #[test]
    fn best_placement_is_chosen_per_transport_over_all_cores() {
        let mut samples = Vec::new();
        for (transport, placement, cores, p50, calls) in [
            ("futex", "scheduled", 1, 5.0, 100.0),
            ("futex", "scheduled", 2, 30.0, 20.0),
            ("futex", "spin", 2, 0.1, 5_000.0),
            ("dbus", "scheduled", 1, 60.0, 10.0),
            ("dbus", "scheduled", 2, 80.0, 30.0),
        ] {
            samples.extend(
                slice(p50, calls).samples(&contender(transport, placement), cores, None).unwrap(),
            );
        }
        let seen: Vec<_> = best(&samples)
            .into_iter()
            .map(|s| {
                assert_eq!(
                    (s.identity.keys["placement"].as_str(), s.identity.keys["cores"].as_str()),
                    ("best", "2")
                );
                format!(
                    "{} {} {} {}",
                    s.identity.runtime, s.identity.metric, s.value, s.notes["is"]
                )
            })
            .collect();
        for row in [
            "futex null_p50 0.1 spin/2",
            "futex calls 10000 spin/2",
            "dbus null_p50 60 scheduled/1",
            "dbus calls 60 scheduled/2",
        ] {
            assert!(seen.contains(&row.to_owned()), "{row}: {seen:?}");
        }
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn every_wait_is_counted_as_a_switch() {
        let mut cat = Program::start(&cores_for(1), Command::new("cat")).unwrap();
        let mut ask = || {
            cat.tell("word").unwrap();
            cat.hear().unwrap();
            switches(cat.id())
        };
        let before = ask();
        let after = (0..5).map(|_| ask()).last().unwrap();
        // The thread may not be waiting again when the counter is read.
        assert!(after >= before + 4, "{before} {after}");
        assert_eq!(switches(u32::MAX), 0);
    }
}
