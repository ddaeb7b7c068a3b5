//! `stall`: determines the request rate, runs the peer of each run, and computes the worst kind and
//! loops relative to `none`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use kumihimo_bench_stall::{CONNECTIONS, Place};
use rustix::mount::{UnmountFlags, unmount};

use crate::bench::contender::program::Program;
use crate::bench::contender::{Contender, Missing, Programs, Trouble, own_cores};
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;
use crate::bench::report::stats::summary;

/// Load as a share of Kumihimo's capacity without stalls. The rate is the same for all contenders:
/// half of each one's own capacity would favour the slowest.
const LOAD: f64 = 0.5;
/// Requests for a measurement of the capacity, and number of measurements.
const REQUESTS: usize = 40_000;
const TRIES: usize = 5;
/// Directory on a disk: /tmp may be a tmpfs, which has no major faults.
const DISK: &str = "/var/tmp";

/// Runs every cell.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let (mut samples, rate) = match capacity(options, programs) {
        Ok((samples, capacity)) => (samples, (capacity * LOAD).floor()),
        Err(trouble) => {
            missing.note("kumihimo stall part=capacity", trouble);
            return Vec::new();
        }
    };
    let ms: usize = if options.full { 5_000 } else { 1_000 };
    let count = (rate * ms as f64 / 1e3) as usize / CONNECTIONS * CONNECTIONS;
    eprintln!("  {rate:.0} requests/s, half of the maximum rate");
    samples.extend(crate::bench::rounds("stall", options, missing, |contender, vps| {
        let more = [format!("warm={}", count / 10), format!("ms={ms}")];
        once(contender, programs, vps, rate, count, &more)
    }));
    let ratios = [worst(&samples), loops(&samples)];
    samples.extend(ratios.into_iter().flatten());
    samples
}

/// Kumihimo's capacity in requests a second, through the same connections and without an event
/// source.
fn capacity(options: &Options, programs: &Programs) -> Result<(Vec<Sample>, f64), Trouble> {
    let contender = plan::stall_capacity(options);
    let mut samples = Vec::new();
    for _ in 0..TRIES {
        samples.extend(once(&contender, programs, plan::STALL_VPS, 0.0, REQUESTS, &[])?);
    }
    let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
    let median = summary(&values).ok_or("no capacity was measured")?.median;
    Ok((samples, median))
}

/// Runs a contender once, with its peer.
fn once(
    contender: &Contender,
    programs: &Programs,
    vps: usize,
    rate: f64,
    count: usize,
    more: &[String],
) -> Result<Vec<Sample>, Trouble> {
    let kind = contender.value("stall").unwrap_or("none");
    let place = Directory::new()?;
    let path = place.0.directory().display().to_string();
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.args(["bench-outside", &path, kind, &rate.to_string(), &count.to_string()]);
    let mut outside = Program::start(&own_cores(), command)?;
    let said = outside.hear().map_err(|e| format!("the other side: {e}"))?;
    if let Some(why) = said.strip_prefix("refused: ") {
        return Err(Trouble::Refused(why.to_owned()));
    }
    let manner = said
        .strip_prefix("ready ")
        .ok_or_else(|| format!("the other side printed {said:?}"))?
        .to_owned();
    let own = [format!("dir={path}"), format!("rate={rate}"), format!("count={count}")];
    let mut samples = contender.run_with(programs, "stall", vps, &[&own, more].concat())?;
    for sample in &mut samples {
        sample.notes.insert("outside".to_owned(), manner.clone());
    }
    Ok(samples)
}

/// A directory for one run, removed when dropped.
struct Directory(Place);

impl Directory {
    fn new() -> Result<Directory, String> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name =
            format!("kumi-stall-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = PathBuf::from(DISK).join(name);
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Directory(Place::new(path)))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The peer unmounts its file system. If it was killed, this removes the mount.
        let _ = unmount(self.0.mount(), UnmountFlags::DETACH);
        if let Err(e) = std::fs::remove_dir_all(self.0.directory()) {
            eprintln!("  {} stays: {e}", self.0.directory().display());
        }
    }
}

/// `p99_ratio` and `p999_ratio`, in rows with `stall=worst`: the worst kind relative to `none`, run
/// by run. A kind that is missing or did not stall often enough is named in the note `short`, and
/// makes the row count as missed (`reached:=0`).
fn worst(samples: &[Sample]) -> Vec<Sample> {
    let of = |like: &Sample, kind: &str| -> Vec<&Sample> {
        samples
            .iter()
            .filter(|s| {
                let mut identity = s.identity.clone();
                identity.keys.insert("stall".to_owned(), "none".to_owned());
                identity == like.identity && s.identity.keys["stall"] == kind
            })
            .collect()
    };
    let mut ratios = Vec::new();
    let mut seen = Vec::new();
    for none in
        samples.iter().filter(|s| s.identity.keys.get("stall").is_some_and(|kind| kind == "none"))
    {
        let metric = none.identity.metric.as_str();
        if seen.contains(&&none.identity) || !["p99", "p999"].contains(&metric) {
            continue;
        }
        seen.push(&none.identity);
        let calm = of(none, "none");
        // Rivals do not run every kind; Kumihimo does.
        let rival = none.identity.runtime != "kumihimo";
        let kinds: Vec<_> = plan::STALLS.iter().map(|&kind| (kind, of(none, kind))).collect();
        for (i, calm) in calm.iter().enumerate() {
            let stalled: Vec<_> =
                kinds.iter().filter_map(|(kind, of)| Some((*kind, *of.get(i)?))).collect();
            let Some((kind, most)) = stalled.iter().max_by(|a, b| a.1.value.total_cmp(&b.1.value))
            else {
                continue;
            };
            let reaches = |kind: &str| {
                stalled.iter().any(|(k, s)| {
                    *k == kind && s.notes.get("reached").is_some_and(|reached| reached == "1")
                })
            };
            let must =
                |kind: &str| !rival || kinds.iter().any(|(k, of)| *k == kind && !of.is_empty());
            let short: Vec<&str> =
                plan::STALLS.into_iter().filter(|&kind| must(kind) && !reaches(kind)).collect();
            let mut ratio = (*calm).clone();
            ratio.identity.metric = format!("{metric}_ratio");
            ratio.identity.keys.insert("stall".to_owned(), "worst".to_owned());
            ratio.value = most.value / calm.value;
            ratio.unit = "ratio".to_owned();
            ratio.notes = [
                ("worst", (*kind).to_owned()),
                ("reached", u8::from(short.is_empty()).to_string()),
            ]
            .map(|(key, value)| (key.to_owned(), value))
            .into();
            if !short.is_empty() {
                ratio.notes.insert("short".to_owned(), short.join(","));
            }
            ratios.push(ratio);
        }
    }
    ratios
}

/// `p99_ratio` and `p999_ratio` beside loops, in rows with `stall=loop`: relative to `none`, run by
/// run.
fn loops(samples: &[Sample]) -> Vec<Sample> {
    let mut seen: Vec<&Sample> = Vec::new();
    let mut ratios = Vec::new();
    for looped in samples {
        let metric = looped.identity.metric.as_str();
        if looped.identity.keys.get("stall").is_none_or(|kind| kind != "loop")
            || !["p99", "p999"].contains(&metric)
        {
            continue;
        }
        let mut calm = looped.identity.clone();
        calm.keys.remove("priority");
        calm.keys.insert("stall".to_owned(), "none".to_owned());
        let run = seen.iter().filter(|other| other.identity == looped.identity).count();
        seen.push(looped);
        let Some(calm) = samples.iter().filter(|s| s.identity == calm).nth(run) else { continue };
        let mut ratio = looped.clone();
        ratio.identity.metric = format!("{metric}_ratio");
        ratio.value = looped.value / calm.value;
        ratio.unit = "ratio".to_owned();
        ratio.notes.retain(|key, _| key == "reached");
        ratios.push(ratio);
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::row::tests::from;

    fn samples(lines: &[String]) -> Vec<Sample> {
        lines
            .iter()
            .map(|line| Sample::parse(line, &from("stall", "kumihimo", 2)).unwrap())
            .collect()
    }

    #[test]
    fn worst_ratio_is_computed_per_run() {
        let mut lines = vec!["p99 100 us stall=none events=watch reached:=1".to_owned()];
        for (kind, p99) in plan::STALLS.iter().zip([150, 300, 120, 110, 100]) {
            lines.push(format!("p99 {p99} us stall={kind} events=watch reached:=1"));
            // Ignored: another source's value, a second run without its `none`, and another metric.
            lines.push(format!("p99 9000 us stall={kind} events=off reached:=1"));
            lines.push(format!("p99 9000 us stall={kind} events=watch reached:=1"));
            lines.push(format!("p50 9000 us stall={kind} events=watch reached:=1"));
        }
        let ratios = worst(&samples(&lines));
        assert_eq!(ratios.len(), 1);
        assert_eq!((ratios[0].value, ratios[0].identity.metric.as_str()), (3.0, "p99_ratio"));
        assert_eq!(ratios[0].identity.keys["stall"], "worst");
        assert_eq!(
            (ratios[0].notes["worst"].as_str(), ratios[0].notes["reached"].as_str()),
            (plan::STALLS[1], "1")
        );
    }

    #[test]
    fn stalls_below_the_minimum_are_noted() {
        let mut lines = vec!["p999 100 us stall=none reached:=1".to_owned()];
        for kind in &plan::STALLS[1..] {
            lines.push(format!(
                "p999 50 us stall={kind} reached:={}",
                u8::from(*kind != plan::STALLS[2])
            ));
        }
        let ratios = worst(&samples(&lines));
        assert_eq!(ratios[0].notes["reached"], "0");
        assert_eq!(ratios[0].notes["short"], format!("{},{}", plan::STALLS[0], plan::STALLS[2]));
    }

    #[test]
    fn ratio_of_loops_is_computed_per_run() {
        let mut lines = vec![
            "p99 100 us stall=none events=bpf reached:=1",
            "p99 200 us stall=none events=bpf reached:=1",
        ];
        lines.extend(["p99 150 us stall=loop priority=lower events=bpf reached:=1"; 2]);
        // Ignored: a row without its `none`, and another metric.
        lines.extend([
            "p99 150 us stall=loop priority=lower events=perf reached:=1",
            "p50 9 us stall=loop priority=lower events=bpf",
        ]);
        lines.push("p99 900 us stall=loop priority=equal events=bpf reached:=0");
        let lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
        let ratios = loops(&samples(&lines));
        let seen: Vec<_> = ratios
            .iter()
            .map(|r| (r.identity.keys["priority"].as_str(), r.value, r.notes["reached"].as_str()))
            .collect();
        assert_eq!(seen, [("lower", 1.5, "1"), ("lower", 0.75, "1"), ("equal", 9.0, "0")]);
        assert!(ratios.iter().all(|r| r.identity.metric == "p99_ratio" && r.unit == "ratio"));
    }

    #[test]
    fn directory_is_removed_with_its_run() {
        let directory = Directory::new().unwrap();
        let path = directory.0.directory().to_owned();
        std::fs::write(directory.0.load(), "x").unwrap();
        drop(directory);
        assert!(!path.exists());
    }
}
