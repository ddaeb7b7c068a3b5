//! Rows of `unwrapped` computed from other rows: relative to std's of the same round, and the worst
//! workload.

use std::collections::BTreeMap;

use crate::bench::report::row::{Identity, Sample};
use crate::bench::report::stats::{median_interval, summary};

/// Keys that identify the event source, the second run of std, or the connections, and not the
/// workload.
const SOURCE_KEYS: [&str; 4] = ["events", "way", "control", CONNECTIONS];
const CONNECTIONS: &str = "connections";
/// The runtime whose rows are compared with those of Kumihimo's own connections, too.
const INTERPOSED: &str = "interposed";
const CONTROL: &str = "control";

/// Workloads whose times are compared with std's, with the names of [`label`].
const RATIOS: [&str; 8] = ["redis", "http", "pipe", "mix/1", "mix/4", "mix/16", "mutex", "fault"];
/// Workloads in which a microprocess should be handed over only a few times.
const HANDOFFS: [&str; 3] = ["redis", "http", "pipe"];
/// Workloads in which a microprocess should rarely alternate between waits inside and outside of
/// the runtime.
const CHANGES: [&str; 3] = ["mix/1", "mix/4", "mix/16"];
/// All workloads.
const ALL: [&str; 12] = [
    "redis",
    "http",
    "pipe",
    "mix/1",
    "mix/4",
    "mix/16",
    "long/4096",
    "long/none",
    "full",
    "mutex",
    "fault",
    "levels",
];

/// `wall_ratio`, `cpu_ratio` and `clock_p99_excess`, and of `interposed` the same over Kumihimo's
/// own connections, round by round; and in rows with `work=worst`,
/// the workload with the worst median of a metric.
pub fn derive(samples: &[Sample]) -> Vec<Sample> {
    let mut derived = beside(samples, |identity| Some(of_std(identity)), OVER_STD);
    derived.extend(beside(samples, of_wrapped, OVER_WRAPPED));
    let worst = [("wall_ratio", &RATIOS[..]), ("cpu_ratio", &RATIOS), ("handoffs", &HANDOFFS)]
        .into_iter()
        .chain([("changes", &CHANGES[..]), ("looks", &ALL)])
        .map(|(metric, works)| worst(samples.iter().chain(&derived), metric, works));
    let worst: Vec<_> = worst.flatten().collect();
    derived.extend(worst);
    derived
}

/// Width of the interval of a control's median above which it cannot hold its figure, which is
/// within 0.95 and 1.05, whatever the true ratio is.
const WIDE: f64 = 0.1;

/// Whether the rounds so far are too few to tell std from std in the workload with this label: the
/// interval of the median of a ratio of its control is wide.
pub fn is_control_wide(samples: &[Sample], work: &str) -> bool {
    let is_std = |s: &&Sample| s.identity.runtime == "std" && label(&s.identity) == work;
    let both: Vec<Sample> = samples.iter().filter(is_std).cloned().collect();
    let ratios = beside(&both, |identity| Some(of_std(identity)), OVER_STD);
    OVER_STD[..2].iter().any(|metric| {
        let values = ratios.iter().filter(|s| s.identity.metric == *metric).map(|s| s.value);
        let values: Vec<f64> = values.collect();
        median_interval(&values).is_some_and(|(low, high)| high - low > WIDE)
    })
}

/// Whether the contender takes part in the workloads of unmodified crates only.
fn is_of_unmodified_crates(identity: &Identity) -> bool {
    identity.runtime == INTERPOSED || identity.keys.contains_key(CONNECTIONS)
}

fn label(identity: &Identity) -> String {
    label_of(|key| identity.keys.get(key).map(String::as_str))
}

/// `mix/16`: the workload, and the key that distinguishes its cells.
pub fn label_of<'a>(of: impl Fn(&str) -> Option<&'a str>) -> String {
    let cell = of("every").or(of("limit")).map(|value| format!("/{value}")).unwrap_or_default();
    format!("{}{cell}", of("work").unwrap_or("-"))
}

/// Identity of std's sample for the same workload and metric.
fn of_std(identity: &Identity) -> Identity {
    let mut of_std = Identity {
        runtime: "std".to_owned(),
        variant: "-".to_owned(),
        queue: "-".to_owned(),
        ..identity.clone()
    };
    SOURCE_KEYS.iter().for_each(|&key| _ = of_std.keys.remove(key));
    of_std
}

/// Names of the ratios of `wall` and `cpu`, and of the difference of `clock_p99`.
const OVER_STD: [&str; 3] = ["wall_ratio", "cpu_ratio", "clock_p99_excess"];
const OVER_WRAPPED: [&str; 3] = ["wall_over_wrapped", "cpu_over_wrapped", "clock_p99_over_wrapped"];

/// Identity of the sample of Kumihimo's own connections for the same workload and metric.
fn of_wrapped(identity: &Identity) -> Option<Identity> {
    if identity.runtime != INTERPOSED {
        return None;
    }
    let mut of_wrapped = Identity {
        runtime: "kumihimo".to_owned(),
        variant: "full".to_owned(),
        queue: kumihimo_bench::default_queue().to_owned(),
        ..identity.clone()
    };
    of_wrapped.keys.insert(CONNECTIONS.to_owned(), "kumihimo".to_owned());
    Some(of_wrapped)
}

/// Pairs each sample with that of the base of the same round. A contender that fails takes part in
/// no later round, so the n-th samples of both belong to the n-th round.
fn beside(
    samples: &[Sample],
    base_of: impl Fn(&Identity) -> Option<Identity>,
    [wall, cpu, clock]: [&'static str; 3],
) -> Vec<Sample> {
    let mut by_identity: BTreeMap<&Identity, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        by_identity.entry(&sample.identity).or_default().push(sample);
    }
    let mut derived = Vec::new();
    let mut seen: BTreeMap<&Identity, usize> = BTreeMap::new();
    for sample in samples {
        let base = base_of(&sample.identity).filter(|base| *base != sample.identity);
        let Some(base) = base else { continue };
        let round = seen.entry(&sample.identity).or_default();
        let base = by_identity.get(&base).and_then(|all| all.get(*round));
        *round += 1;
        let Some(base) = base else { continue };
        let (metric, value, unit) = match sample.identity.metric.as_str() {
            "wall" => (wall, sample.value / base.value, "ratio"),
            "cpu" => (cpu, sample.value / base.value, "ratio"),
            "clock_p99" => (clock, sample.value - base.value, "us"),
            _ => continue,
        };
        if !value.is_finite() {
            continue;
        }
        let mut one = sample.clone();
        one.identity.metric = metric.to_owned();
        (one.value, one.unit) = (value, unit.to_owned());
        one.notes.retain(|key, _| key == "reached");
        // If the base did not reach the required work, its value is no reference.
        if base.notes.get("reached").is_some_and(|reached| reached == "0") {
            one.notes.insert("reached".to_owned(), "0".to_owned());
        }
        derived.push(one);
    }
    derived
}

/// The workload with the worst median, for each source of all workloads and for std's control.
/// Workloads that are missing or incomplete are named in the note `short`, and make the row count
/// as missed (`reached:=0`).
fn worst<'a>(
    samples: impl Iterator<Item = &'a Sample>,
    metric: &str,
    works: &[&str],
) -> Vec<Sample> {
    let mut sources: BTreeMap<Identity, Vec<&Sample>> = BTreeMap::new();
    for sample in samples.filter(|s| {
        s.identity.metric == metric
            && works.contains(&&*label(&s.identity))
            && !is_of_unmodified_crates(&s.identity)
    }) {
        let mut source = sample.identity.clone();
        source.keys.retain(|key, _| SOURCE_KEYS.contains(&key.as_str()));
        source.keys.insert("work".to_owned(), "worst".to_owned());
        sources.entry(source).or_default().push(sample);
    }
    sources
        .into_iter()
        .filter_map(|(identity, samples)| worst_of(identity, &samples, works))
        .collect()
}

fn worst_of(identity: Identity, samples: &[&Sample], works: &[&str]) -> Option<Sample> {
    // For std relative to std, a deviation in either direction is bad.
    let badness =
        |value: f64| if identity.keys.contains_key(CONTROL) { value.ln().abs() } else { value };
    let (mut worst, mut short) = (None, Vec::new());
    for work in works {
        let of: Vec<&&Sample> = samples.iter().filter(|s| label(&s.identity) == *work).collect();
        let values: Vec<f64> = of.iter().map(|s| s.value).collect();
        let reached =
            of.iter().all(|s| s.notes.get("reached").is_none_or(|reached| reached != "0"));
        let Some(median) = summary(&values).map(|summary| summary.median).filter(|_| reached)
        else {
            short.push(*work);
            continue;
        };
        if worst.is_none_or(|(_, most)| badness(median) > badness(most)) {
            worst = Some((*work, median));
        }
    }
    let (work, value) = worst?;
    let mut notes = BTreeMap::from([("is".to_owned(), work.to_owned())]);
    if !short.is_empty() {
        notes.insert("reached".to_owned(), "0".to_owned());
        notes.insert("short".to_owned(), short.join(","));
    }
    Some(Sample { identity, value, unit: samples[0].unit.clone(), notes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::row::tests::from;

    fn samples(lines: &[(&str, String)]) -> Vec<Sample> {
        let parse = |(runtime, line): &(&str, String)| {
            Sample::parse(line, &from("unwrapped", runtime, 2)).unwrap()
        };
        let mut samples: Vec<Sample> = lines.iter().map(parse).collect();
        for sample in &mut samples {
            if sample.identity.runtime == "std" {
                (sample.identity.variant, sample.identity.queue) = ("-".to_owned(), "-".to_owned());
            }
        }
        samples
    }

    fn shown(samples: &[Sample]) -> Vec<String> {
        let show = |s: &Sample| {
            let keys: Vec<_> =
                s.identity.keys.iter().chain(&s.notes).map(|(k, v)| format!(" {k}={v}")).collect();
            format!("{} {}{}", s.identity.metric, s.value, keys.concat())
        };
        samples.iter().map(show).collect()
    }

    #[test]
    fn ratios_to_std_are_computed_per_round() {
        let mut lines = Vec::new();
        for (ours, std) in [(10, 5), (30, 10), (7, 1)] {
            lines.push((
                "kumihimo",
                format!("wall {ours} s work=mix every=4 events=bpf way=thread source:=bpf"),
            ));
            lines.push(("std", format!("wall {std} s work=mix every=4")));
        }
        // Ignored: another cell, another workload, and a metric that is not compared.
        for line in [
            "wall 9 s work=mix every=1",
            "wall 9 s work=pipe",
            "kernel_threads 3 threads work=mix every=4",
        ] {
            lines.push(("std", line.to_owned()));
        }
        lines
            .push(("kumihimo", "kernel_threads 9 threads work=mix every=4 events=perf".to_owned()));
        let ratios =
            [2, 3, 7].map(|r| format!("wall_ratio {r} events=bpf every=4 way=thread work=mix"));
        assert_eq!(shown(&beside_std(&samples(&lines))), ratios);
    }

    #[test]
    fn lateness_beside_a_work_is_compared_by_difference() {
        let lines = [
            ("std", "clock_p99 900 us work=redis ticks:=7".to_owned()),
            ("kumihimo", "clock_p99 400 us work=redis events=perf ticks:=9".to_owned()),
            ("kumihimo", "clock_p99 400 us work=levels events=perf ticks:=9".to_owned()),
        ];
        assert_eq!(
            shown(&beside_std(&samples(&lines))),
            ["clock_p99_excess -500 events=perf work=redis"]
        );
    }

    fn beside_std(samples: &[Sample]) -> Vec<Sample> {
        beside(samples, |identity| Some(of_std(identity)), OVER_STD)
    }

    #[test]
    fn interposed_threads_are_compared_with_both() {
        let lines = [
            ("interposed", "cpu 2 s work=redis"),
            ("interposed", "cpu 3 s work=redis"),
            ("std", "cpu 4 s work=redis"),
            ("std", "cpu 4 s work=redis"),
            ("kumihimo", "cpu 1 s work=redis connections=kumihimo"),
            ("kumihimo", "cpu 1 s work=redis connections=kumihimo"),
        ];
        let mut samples = samples(&lines.map(|(runtime, line)| (runtime, line.to_owned())));
        for sample in &mut samples {
            if sample.identity.runtime == INTERPOSED {
                (sample.identity.variant, sample.identity.queue) = ("-".to_owned(), "-".to_owned());
            }
        }
        assert_eq!(
            shown(&beside(&samples, of_wrapped, OVER_WRAPPED)),
            ["cpu_over_wrapped 2 work=redis", "cpu_over_wrapped 3 work=redis"]
        );
        assert_eq!(
            shown(&beside_std(&samples)),
            [
                "cpu_ratio 0.5 work=redis",
                "cpu_ratio 0.75 work=redis",
                "cpu_ratio 0.25 connections=kumihimo work=redis",
                "cpu_ratio 0.25 connections=kumihimo work=redis"
            ]
        );
    }

    #[test]
    fn control_is_wide_until_its_median_is_known() {
        let with = |work: &str, values: &[f64]| {
            let lines = values.iter().flat_map(|value| {
                let again = format!("cpu {value} s work={work} control=again");
                [("std", format!("cpu 1 s work={work}")), ("std", again)]
            });
            samples(&lines.collect::<Vec<_>>())
        };
        let spread = [0.8, 0.85, 0.9, 0.97, 1.0, 1.02, 1.1, 1.2, 1.3];
        assert!(is_control_wide(&with("redis", &spread), "redis"));
        assert!(!is_control_wide(&with("redis", &spread), "http"), "another workload's");
        let close = spread.map(|value| 1.0 + (value - 1.0) / 10.0);
        assert!(!is_control_wide(&with("redis", &close), "redis"));
        assert!(!is_control_wide(&with("redis", &spread[..5]), "redis"), "too few to say");
    }

    fn of_all(works: &[&str], value: impl Fn(usize) -> f64) -> Vec<(&'static str, String)> {
        let line = |(i, work): (usize, &&str)| {
            let cell = match work.split_once('/') {
                None => format!("work={work}"),
                Some(("mix", every)) => format!("work=mix every={every}"),
                Some((work, limit)) => format!("work={work} limit={limit}"),
            };
            ("kumihimo", format!("looks {} 1/s {cell} events=watch", value(i)))
        };
        works.iter().enumerate().map(line).collect()
    }

    #[test]
    fn worst_work_of_a_source_is_named() {
        let all = samples(&of_all(&ALL, |i| (i % 6) as f64));
        assert_eq!(
            shown(&worst(all.iter(), "looks", &ALL)),
            ["looks 5 events=watch work=worst is=mix/16"]
        );
        let some = samples(&of_all(&ALL[..2], |i| i as f64));
        let expected = "looks 1 events=watch work=worst is=http reached=0 short=pipe";
        assert_eq!(shown(&worst(some.iter(), "looks", &HANDOFFS)), [expected]);
    }

    #[test]
    fn faults_without_disk_reads_are_noted_and_not_counted() {
        let mut lines = Vec::new();
        for work in ["redis", "fault"] {
            lines.push(("std", format!("cpu 1 s work={work} reached:=1")));
            lines.push((
                "kumihimo",
                format!("cpu 2 s work={work} events=perf reached:={}", u8::from(work == "redis")),
            ));
        }
        let ratios = beside_std(&samples(&lines));
        let worst = worst(ratios.iter(), "cpu_ratio", &["redis", "fault"]);
        assert_eq!(
            shown(&worst),
            ["cpu_ratio 2 events=perf work=worst is=redis reached=0 short=fault"]
        );
    }

    #[test]
    fn deviation_of_a_control_has_both_directions() {
        let lines = [
            ("std", "wall 1 s work=redis".to_owned()),
            ("std", "wall 1.1 s work=redis control=again".to_owned()),
            ("std", "wall 1 s work=http".to_owned()),
            ("std", "wall 0.5 s work=http control=again".to_owned()),
        ];
        let ratios = beside_std(&samples(&lines));
        let worst = worst(ratios.iter(), "wall_ratio", &["redis", "http"]);
        assert_eq!(shown(&worst), ["wall_ratio 0.5 control=again work=worst is=http"]);
    }
}
