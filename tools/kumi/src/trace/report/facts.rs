//! The small part of a report, which the page reads as JSON.

use std::collections::HashMap;
use std::path::Path;

use kumihimo_trace::{Finding, FindingKind, Verdict};
use serde::Serialize;

use super::collect::{Collected, Run};
use super::lanes::Place;
use super::stacks::Stacks;
use super::{contention, latency};

/// What the page shows besides the columns.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    file: String,
    bytes: u64,
    version: &'static str,
    /// `holds`, `violated` or `incomplete`.
    verdict: &'static str,
    /// Why the check proves nothing, if so.
    lacks: Vec<&'static str>,
    /// The check's own lines.
    check: String,
    /// Detail of the timelines in nanoseconds; 0: all of it.
    resolution: u64,
    /// Milliseconds that make a stall.
    stall: u64,
    /// Number of samples of the stacks of locks.
    samples: u64,
    runs: Vec<RunFacts>,
}

/// A run.
#[derive(Debug, Serialize)]
struct RunFacts {
    name: String,
    end: u64,
    /// Whether the trace contains the end of the run.
    ends: bool,
    /// Counts of the run, by name.
    counts: Vec<(&'static str, u64)>,
    micros: usize,
    lanes: Vec<LaneFacts>,
    findings: Vec<FindingFacts>,
    stalls: u64,
    /// The longest times from runnable to running, the longest first.
    longest: Vec<Place>,
    latency: latency::Shown,
    causes: Vec<(String, latency::Shown)>,
    levels: Vec<(u8, latency::Shown)>,
    contention: contention::Shown,
}

#[derive(Debug, Serialize)]
struct LaneFacts {
    name: String,
    spans: usize,
    several: usize,
}

#[derive(Debug, Serialize)]
struct FindingFacts {
    kind: &'static str,
    text: String,
    from: u64,
    to: u64,
    lane: Option<usize>,
    micro: Option<u32>,
}

impl Facts {
    pub(super) fn of(
        all: &Collected,
        stacks: &Stacks,
        file: &Path,
        bytes: u64,
        stall: u64,
    ) -> Facts {
        let report = &all.report;
        let mut findings: HashMap<u64, Vec<&Finding>> = HashMap::new();
        for finding in &report.findings {
            findings.entry(finding.run).or_default().push(finding);
        }
        let name = file.file_name().unwrap_or(file.as_os_str());
        Facts {
            file: name.to_string_lossy().into_owned(),
            bytes,
            version: env!("CARGO_PKG_VERSION"),
            verdict: match report.verdict() {
                Verdict::Holds => "holds",
                Verdict::Violated => "violated",
                Verdict::Incomplete => "incomplete",
            },
            lacks: [
                (report.lost > 0, "records were lost, so sums are too small"),
                (!report.ends, "it ends before its run does"),
                (report.untold, "levels differ, and no steps are recorded"),
            ]
            .into_iter()
            .filter_map(|(is, what)| is.then_some(what))
            .collect(),
            check: report.to_string(),
            resolution: all.resolution,
            stall,
            samples: stacks.samples,
            runs: all
                .runs
                .iter()
                .map(|run| {
                    RunFacts::of(run, stacks, findings.remove(&run.track).unwrap_or_default())
                })
                .collect(),
        }
    }

    pub(super) fn title(&self) -> String {
        format!("{}: report of a Kumihimo trace", self.file)
    }

    /// One phrase for the terminal.
    pub(super) fn in_short(&self) -> String {
        let sum = |of: fn(&RunFacts) -> usize| self.runs.iter().map(of).sum::<usize>();
        format!(
            "{} run(s), {} microprocesses, {} spans",
            self.runs.len(),
            sum(|run| run.micros),
            sum(|run| run.lanes.iter().map(|lane| lane.spans).sum())
        )
    }
}

impl RunFacts {
    fn of(run: &Run, stacks: &Stacks, findings: Vec<&Finding>) -> RunFacts {
        let counts = run.summary.map(|all| {
            vec![
                ("records", all.records),
                ("lost records", all.lost),
                ("started", all.spawned),
                ("ended", all.ended),
                ("switches", all.switches),
                ("hand-overs of VPs", all.hand_overs),
                ("blocks in the kernel", all.blocked),
            ]
        });
        let lane = |lane: &super::lanes::Lane| LaneFacts {
            name: lane.name.clone(),
            spans: lane.spans.len(),
            several: lane
                .spans
                .iter()
                .filter(|span| span.runs == super::lanes::Runs::Several)
                .count(),
        };
        RunFacts {
            name: run.name.clone(),
            end: run.end,
            ends: run.summary.is_some(),
            counts: counts.unwrap_or_default(),
            micros: run.micros.len(),
            lanes: run.lanes.iter().map(lane).collect(),
            findings: findings.into_iter().map(|finding| FindingFacts::of(run, finding)).collect(),
            stalls: run.stalls,
            longest: run.longest.clone().into_sorted().into_iter().map(|(_, at)| at).collect(),
            latency: run.latency.shown(),
            causes: run.by_cause.iter().map(|(why, of)| (why.to_string(), of.shown())).collect(),
            levels: run.by_level.iter().map(|(level, of)| (*level, of.shown())).collect(),
            contention: run.contention.shown(stacks),
        }
    }
}

impl FindingFacts {
    fn of(run: &Run, finding: &Finding) -> FindingFacts {
        FindingFacts {
            kind: match finding.kind {
                FindingKind::Inversion => "inversion",
                FindingKind::ShortInversion => "inversion within the bound",
                FindingKind::Contradiction => "contradiction",
                FindingKind::Stall => "stall",
                FindingKind::Lost => "lost records",
            },
            text: finding.text.clone(),
            from: finding.from,
            to: finding.to,
            lane: run.lane_of(finding.track),
            micro: run.micro_of(finding.track),
        }
    }
}
