//! `resources`: the paper's loads (P3, 5.2.1), round after round; `create_space`, which is timed by
//! this command; the scaling of both; and the times of single steps for the simulation.

use std::path::Path;
use std::process::Stdio;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use kumihimo_bench_simulate::locks::{Load, Times};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::bench::contender::directory::Directory;
use crate::bench::contender::{Contender, Missing, Programs, Trouble, cores_for};
use crate::bench::plan::Options;
use crate::bench::report::row::{Rows, Sample};
use kumi::host::description;

const BENCH: &str = "resources";
/// Number of workers, as in the paper.
const WORKERS: usize = 24;
/// Number of programs for each worker in `create_space`: a program takes thousands of times as long
/// as a microprocess.
const SPACES_EACH: usize = 4;
/// Number of iterations of the loads for the simulation.
const ITERATIONS: &str = "10000";
/// Number of iterations of the kernel's `create`, which is long enough for timing.
const FEW: &str = "100";

/// Runs all rounds, and computes the scaling.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let directory = match Directory::new(BENCH) {
        Ok(directory) => directory,
        Err(why) => {
            missing.note(BENCH, why.into());
            return Vec::new();
        }
    };
    let mut samples = crate::bench::rounds(BENCH, options, missing, |contender, vps| {
        let mut contender = contender.clone();
        let joins = contender.value("load") == Some("join");
        contender.args.push(directory.argument());
        if joins {
            create_space(&contender, programs, vps)
        } else {
            contender.run(programs, BENCH, vps)
        }
    });
    samples.extend(scales(&samples));
    samples
}

/// 24 kernel threads, assigned to the cores in turn, each start programs one after the other that
/// join the machine and end. Measured from the first start to the last end.
fn create_space(
    contender: &Contender,
    programs: &Programs,
    vps: usize,
) -> Result<Vec<Sample>, Trouble> {
    let cores = cores_for(vps);
    let gate = Barrier::new(WORKERS);
    let spans: Vec<Result<(Instant, Instant), String>> = thread::scope(|scope| {
        let worker = |n: usize| {
            let (gate, core) = (&gate, cores[n % cores.len()]);
            scope.spawn(move || {
                let on_core = stay_on(core);
                gate.wait();
                on_core?;
                let begun = Instant::now();
                for _ in 0..SPACES_EACH {
                    let mut command = contender.command(programs, BENCH, 1)?;
                    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
                    let status =
                        status.map_err(|e| format!("{}: {e}", command.get_program().display()))?;
                    if !status.success() {
                        return Err(format!("a joining program failed: {status}"));
                    }
                }
                Ok((begun, Instant::now()))
            })
        };
        let workers: Vec<_> = (0..WORKERS).map(worker).collect();
        workers.into_iter().map(|worker| worker.join().expect("it reports what fails")).collect()
    });
    let spans = spans.into_iter().collect::<Result<Vec<_>, _>>()?;
    let first = spans.iter().map(|span| span.0).min().expect("some");
    let last = spans.iter().map(|span| span.1).max().expect("some");
    let locking = contender.value("locking").unwrap_or("?");
    let over = if cores.len() < vps { " over_committed:=yes" } else { "" };
    let ms = (last - first).as_secs_f64() * 1e3;
    let line =
        format!("time {ms} ms load=create_space iterations={SPACES_EACH} locking={locking}{over}");
    Ok(vec![Sample::parse(&line, &contender.identity(BENCH, vps))?])
}

/// Confines the calling kernel thread and its children to a core.
fn stay_on(core: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|e| format!("affinity to {core}: {e}"))
}

/// Time on several VPs relative to one, round by round, for the longest run of each load.
fn scales(samples: &[Sample]) -> Vec<Sample> {
    let mut scales = Vec::new();
    let is_timed = |s: &&Sample| {
        let (load, iterations) = (&s.identity.keys["load"], s.identity.keys["iterations"].as_str());
        s.identity.metric == "time"
            && (iterations != FEW || s.identity.runtime == "linux" && load == "create")
    };
    let times: Vec<&Sample> =
        samples.iter().filter(|s| s.identity.keys.contains_key("load")).filter(is_timed).collect();
    for (at, many) in times.iter().enumerate().filter(|(_, s)| s.identity.vps > 1) {
        // Each sample is paired with the one of the same round.
        let same = |s: &&&Sample, vps: usize| {
            let (a, b) = (&s.identity, &many.identity);
            (a.vps, &a.runtime, &a.keys) == (vps, &b.runtime, &b.keys)
        };
        let round = times[..at].iter().filter(|s| same(s, many.identity.vps)).count();
        let Some(one) = times.iter().filter(|s| same(s, 1)).nth(round) else { continue };
        let mut scale = (*many).clone();
        let load = scale.identity.keys.remove("load").expect("it was looked at");
        scale.identity.metric = format!("{load}_scale");
        scale.value = many.value / one.value;
        scale.unit = "ratio".to_owned();
        scales.push(scale);
    }
    scales
}

/// Writes the input of the simulation.
///
/// # Errors
/// If a row is missing, or the file cannot be written.
pub fn write_times(path: &Path, rows: &Rows) -> Result<(), String> {
    let times = times(rows).map_err(|why| format!("--write-times: {why}"))?;
    let text = serde_json::to_string_pretty(&times).map_err(|e| e.to_string())? + "\n";
    std::fs::write(path, text).map_err(|e| format!("--write-times {}: {e}", path.display()))
}

/// The time of an operation is that of its load on one VP (design `vp`, with the least locking)
/// divided by the operations. Times inside of sections cannot be observed from outside, so they are
/// sums of parts measured alone. Each section of the table opens and closes an entry. There are
/// three in `create` (stack, share, microprocess), and two in `region` (its entry, its place in the
/// list of free ones). The lock of a mailbox covers its lists, which take about as long, and the
/// copy of the message's 4 KB. The shared parts of a kind belong to each VP except for overflows,
/// which do not occur in these loads, and nothing is named: neither has a part.
fn times(rows: &Rows) -> Result<Times, String> {
    let rows = rows.rows();
    let median = |what: &str, is: &dyn Fn(&crate::bench::report::row::Identity) -> bool| {
        let row = rows.iter().find(|row| row.identity.runtime == "kumihimo" && is(&row.identity));
        row.map(|row| row.summary.median).ok_or_else(|| format!("{what} was not measured"))
    };
    let part = |metric: &str| median(metric, &|id| id.metric == metric);
    let total = |load: &str| {
        let keys = [("load", load), ("locking", "vp"), ("iterations", ITERATIONS)];
        let ms = median(&format!("{load} on one VP"), &|id| {
            id.metric == "time"
                && id.vps == 1
                && keys.iter().all(|(k, v)| id.keys.get(*k).is_some_and(|it| it == v))
        })?;
        Ok::<_, String>(ms * 1e6 / (WORKERS as f64 * ITERATIONS.parse::<f64>().expect("a number")))
    };
    let (slot, copy, hand_over_ns) = (part("slot")?, part("copy")?, part("hand_over")?);
    // On a noisy machine, the sum of the parts may exceed the whole.
    let load = |kinds: usize, total_ns: f64, sections: f64| Load {
        kinds,
        total_ns,
        resource_ns: sections.min(total_ns),
        names_ns: 0.0,
        shared_ns: 0.0,
    };
    let cpu = description::description()
        .into_iter()
        .find(|(name, _)| *name == "cpu")
        .map_or_else(String::new, |(_, cpu)| cpu);
    let times = Times {
        machine: format!(
            "{cpu}, {} cores, measured by kumi bench resources: times of the loads on one VP; sections as sums of parts measured separately (opening and closing an entry \
             {slot:.0} ns, copying 4 KB {copy:.0}, transfer of a cache line to the other core {hand_over_ns:.0}); resources have no names, and shared lists do not overflow",
            crate::bench::contender::own_cores().len()
        ),
        hand_over_ns,
        create: load(2, total("create")?, 3.0 * slot),
        region: load(1, total("region")?, 2.0 * slot),
        message: load(1, total("message")?, slot + copy),
    };
    times.check()?;
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::row::tests::from;

    fn sample(runtime: &str, vps: usize, line: &str) -> Sample {
        Sample::parse(line, &from(BENCH, runtime, vps)).unwrap()
    }

    #[test]
    fn scales_are_computed_from_pairs_of_one_round() {
        let mut samples = Vec::new();
        for (one, two) in [(10, 6), (20, 10)] {
            samples.push(sample(
                "kumihimo",
                1,
                &format!("time {one} ms load=region locking=id iterations=10000"),
            ));
            samples.push(sample(
                "kumihimo",
                2,
                &format!("time {two} ms load=region locking=id iterations=10000"),
            ));
            samples.push(sample("kumihimo", 2, "time 1 ms load=region locking=id iterations=100"));
            samples.push(sample("kumihimo", 2, "slot 1 ns locking=kind"));
        }
        samples.push(sample("linux", 1, "time 8 ms load=create iterations=100"));
        samples.push(sample("linux", 2, "time 4 ms load=create iterations=100"));
        // Without a run on one VP.
        samples.push(sample("kumihimo", 2, "time 5 ms load=message locking=vp iterations=10000"));
        let scales = scales(&samples);
        let told: Vec<_> = scales
            .iter()
            .map(|s| (s.identity.metric.as_str(), s.identity.runtime.as_str(), s.value))
            .collect();
        assert_eq!(
            told,
            [
                ("region_scale", "kumihimo", 0.6),
                ("region_scale", "kumihimo", 0.5),
                ("create_scale", "linux", 0.5)
            ]
        );
        assert_eq!(
            (scales[0].identity.keys["locking"].as_str(), scales[0].identity.vps),
            ("id", 2)
        );
    }

    #[test]
    fn times_for_the_simulation_are_computed_from_the_rows() {
        let mut rows = Rows::default();
        for load in ["create", "region", "message"] {
            rows.add(sample(
                "kumihimo",
                1,
                &format!("time 72 ms load={load} locking=vp iterations=10000"),
            ))
            .unwrap();
        }
        assert!(times(&rows).unwrap_err().contains("slot was not measured"));
        for line in ["slot 20 ns locking=kind", "copy 90 ns", "hand_over 40 ns"] {
            rows.add(sample("kumihimo", 2, line)).unwrap();
        }
        let times = times(&rows).unwrap();
        assert_eq!(
            (times.hand_over_ns, times.create.total_ns, times.create.resource_ns),
            (40.0, 300.0, 60.0)
        );
        assert_eq!((times.region.resource_ns, times.message.resource_ns), (40.0, 110.0));
    }

    #[test]
    fn times_of_parts_are_limited_to_the_total() {
        let mut rows = Rows::default();
        for load in ["create", "region", "message"] {
            rows.add(sample(
                "kumihimo",
                1,
                &format!("time 7.2 ms load={load} locking=vp iterations=10000"),
            ))
            .unwrap();
        }
        for line in ["slot 20 ns locking=kind", "copy 90 ns", "hand_over 40 ns"] {
            rows.add(sample("kumihimo", 2, line)).unwrap();
        }
        let region = times(&rows).unwrap().region;
        assert_eq!((region.resource_ns, region.total_ns), (30.0, 30.0));
    }

    #[test]
    fn kernel_thread_stays_on_its_core() {
        let core = *crate::bench::contender::own_cores().last().expect("one");
        thread::spawn(move || {
            stay_on(core).unwrap();
            assert_eq!(crate::bench::contender::own_cores(), [core]);
        })
        .join()
        .unwrap();
    }
}
