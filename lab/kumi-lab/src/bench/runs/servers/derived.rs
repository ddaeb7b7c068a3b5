//! Rows computed from the rows of several contenders.

use std::collections::BTreeMap;

use super::loads::modern::OPERATIONS;
use crate::bench::plan::ORGANISATIONS;
use crate::bench::report::row::{Identity, Sample};
use crate::bench::report::stats::summary;

/// The organisation with which the others are compared under P1's load, and beside which the best
/// of them is determined.
const BASELINE: &str = ORGANISATIONS[0];
const OURS: &str = ORGANISATIONS[4];
/// Names in place of an organisation and of a number of threads.
pub const BEST_OTHER: &str = "best-other";
pub const BEST: &str = "best";

/// All computed rows.
pub fn all(samples: &[Sample]) -> Vec<Sample> {
    let mut all = against_sequential(samples);
    all.extend(best_other(samples));
    all.extend(floor(samples));
    all
}

fn says(sample: &Sample, key: &str, value: &str) -> bool {
    sample.identity.keys.get(key).is_some_and(|said| said == value)
}

/// `time_ratio_vs_sequential`: the speed-up of the clock's replies beside `fileread` relative to
/// one sequential process, run by run.
fn against_sequential(samples: &[Sample]) -> Vec<Sample> {
    let both = || samples.iter().filter(|s| s.identity.metric == "time_both");
    let mut ratios = Vec::new();
    for cores in cores(samples) {
        let on = |sample: &&Sample| sample.identity.vps == cores;
        let baseline: Vec<f64> = both()
            .filter(on)
            .filter(|s| says(s, "organisation", BASELINE))
            .map(|s| s.value)
            .collect();
        let mut runs: BTreeMap<&Identity, usize> = BTreeMap::new();
        for sample in both().filter(on) {
            let run = runs.entry(&sample.identity).or_default();
            if let Some(sequential) = baseline.get(*run) {
                let identity = Identity {
                    metric: "time_ratio_vs_sequential".to_owned(),
                    ..sample.identity.clone()
                };
                let value = sequential / sample.value;
                ratios.push(Sample {
                    identity,
                    value,
                    unit: "ratio".to_owned(),
                    notes: BTreeMap::new(),
                });
            }
            *run += 1;
        }
    }
    ratios
}

/// Among all organisations except Kumihimo's, with default threads, the one whose clock replies
/// fastest beside `fileread`.
fn best_other(samples: &[Sample]) -> Vec<Sample> {
    let others = samples.iter().filter(|s| {
        s.identity.metric == "time_both"
            && !says(s, "organisation", OURS)
            && (says(s, "threads", "1") || says(s, "threads", "pool"))
    });
    best(others, false, |identity| {
        let is = identity.keys.insert("organisation".to_owned(), BEST_OTHER.to_owned());
        identity.keys.insert("threads".to_owned(), "-".to_owned());
        is
    })
}

/// Among the servers of files in memory, the fastest for each operation.
fn floor(samples: &[Sample]) -> Vec<Sample> {
    let floors = samples.iter().filter(|s| {
        s.identity.runtime == "floor" && OPERATIONS.contains(&s.identity.metric.as_str())
    });
    best(floors, true, |identity| identity.keys.insert("threads".to_owned(), BEST.to_owned()))
}

/// A row in a group of equivalent rows: its name, and its samples.
type Alike<'a> = (Option<String>, Vec<&'a Sample>);

/// Among rows that `common` considers equivalent, the one with the best median, under the common
/// name. `common` returns the original name, for the note `is`.
fn best<'a>(
    samples: impl Iterator<Item = &'a Sample>,
    more: bool,
    common: impl Fn(&mut Identity) -> Option<String>,
) -> Vec<Sample> {
    let mut groups: BTreeMap<Identity, BTreeMap<&Identity, Alike>> = BTreeMap::new();
    for sample in samples {
        let mut group = sample.identity.clone();
        let is = common(&mut group);
        groups
            .entry(group)
            .or_default()
            .entry(&sample.identity)
            .or_insert((is, Vec::new()))
            .1
            .push(sample);
    }
    let median = |samples: &[&Sample]| {
        let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
        summary(&values).map_or(f64::NAN, |s| s.median)
    };
    let mut chosen = Vec::new();
    for (group, rows) in groups {
        let rows = rows.into_values().map(|(is, samples)| (median(&samples), is, samples));
        let Some((_, is, samples)) =
            rows.min_by(|a, b| if more { b.0.total_cmp(&a.0) } else { a.0.total_cmp(&b.0) })
        else {
            continue;
        };
        chosen.extend(samples.into_iter().map(|sample| {
            let mut sample = Sample { identity: group.clone(), ..sample.clone() };
            sample.notes.insert("is".to_owned(), is.clone().unwrap_or_default());
            sample
        }));
    }
    chosen
}

/// All numbers of cores that have rows.
fn cores(samples: &[Sample]) -> Vec<usize> {
    let mut all: Vec<usize> = samples.iter().map(|s| s.identity.vps).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::row::tests::from;

    fn samples(lines: &[&str]) -> Vec<Sample> {
        lines
            .iter()
            .map(|line| Sample::parse(line, &from("servers", "kumihimo", 1)).unwrap())
            .collect()
    }

    #[test]
    fn ratios_are_run_by_run() {
        let all = samples(&[
            "time_both 100 ms organisation=sequential threads=1",
            "time_both 20 ms organisation=processes threads=1",
            "time_both 300 ms organisation=sequential threads=1",
            "time_both 30 ms organisation=processes threads=1",
            "time_both 30 ms organisation=processes threads=1",
        ]);
        let ratios = against_sequential(&all);
        let of = |organisation: &str| {
            ratios
                .iter()
                .filter(|s| says(s, "organisation", organisation))
                .map(|s| s.value)
                .collect::<Vec<_>>()
        };
        assert_eq!((of("sequential"), of("processes")), (vec![1.0, 1.0], vec![5.0, 10.0]));
    }

    #[test]
    fn best_other_and_best_floor_are_named() {
        let all = samples(&[
            "time_both 100 ms organisation=sequential threads=1",
            "time_both 40 ms organisation=kernel-threads threads=pool",
            "time_both 10 ms organisation=kernel-threads threads=per-request",
            "time_both 20 ms organisation=microprocesses threads=pool",
            "stat 10 1/s clients=1 threads=1 runtime=floor",
            "stat 30 1/s clients=1 threads=2 runtime=floor",
            "stat_p99 1 us clients=1 threads=2 runtime=floor",
        ]);
        let derived = self::all(&all);
        let of = |key: &str, value: &str| derived.iter().find(|s| says(s, key, value)).unwrap();
        let other = of("organisation", BEST_OTHER);
        assert_eq!((other.value, other.notes["is"].as_str()), (40.0, "kernel-threads"));
        let floor = of("threads", BEST);
        assert_eq!((floor.value, floor.notes["is"].as_str()), (30.0, "2"));
    }
}
