//! Verifies from a trace that states never overlap and that priorities are exact.
//!
//! States are slices on the track of each microprocess. A microprocess that is suspended until it
//! is resumed must become ready before it runs. [`crate::check::priority_order`] defines exactness
//! and how inversions are counted.

pub(crate) mod board_order;
mod finding;
pub mod priority_order;
mod verdict;

pub use finding::{Finding, FindingKind};
pub use verdict::Verdict;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::capture::record::{WAIT_RESUME, WAITS};
use crate::format::names::{LOST, NAMES, OVERRIDDEN, SPAWNED, State};
use crate::format::perfetto::{INSTANT, SLICE_BEGIN, SLICE_END};
use crate::read::{Event, Of, Reader, Track};
use board_order::Merge;
use priority_order::{BOUND, Inversion, Steps, longer};

/// Number of contradictions that are described; further ones are only counted.
const DESCRIBED: usize = 20;

/// The result of [`check`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Number of runs in the file.
    pub runs: usize,
    /// Number of virtual processors in the largest run.
    pub vps: usize,
    /// Number of microprocesses.
    pub microprocesses: u64,
    /// Number of scheduling steps in runs with several levels. Without such steps, priorities need
    /// no check.
    pub steps: u64,
    /// Number of times that a microprocess was sent to a VP that ran one of a lower level. Each
    /// ended or prevented an inversion.
    pub sent: u64,
    /// Number of steps after which a microprocess still waited that outranked the one on another
    /// VP.
    pub inverted: u64,
    /// The longest inversion, in steps of the VP, in which a VP kept an item that outranked another
    /// VP's.
    pub kept: Option<Inversion>,
    /// The longest inversion, in steps of the VP, in which a VP ran a lower level than one that
    /// waited there.
    pub missed: Option<Inversion>,
    /// Number of inversions beyond the bound.
    pub beyond: u64,
    /// The bound, in consecutive steps of one VP.
    pub bound: u64,
    /// A run has several levels but no steps, because its runtime does not record them.
    pub untold: bool,
    /// Descriptions of the first twenty contradictions: overlapping states, ends without a start,
    /// and microprocesses that run without having been resumed.
    pub overlaps: Vec<String>,
    /// Number of contradictions.
    pub overlap_count: u64,
    /// The first thousand findings of each run, in the order of their starts. The longest
    /// inversions within the bound are among them.
    pub findings: Vec<Finding>,
    /// Number of lost records.
    pub lost: u64,
    /// Whether every run is complete.
    pub ends: bool,
}

impl Report {
    /// Returns the verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.lost > 0 || !self.ends || self.untold {
            Verdict::Incomplete
        } else if self.beyond > 0 || self.overlap_count > 0 {
            Verdict::Violated
        } else {
            Verdict::Holds
        }
    }
}

impl Report {
    /// Writes all lines of the report except the verdict.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} run(s), up to {} VPs, {} microprocesses, {} scheduling steps with levels that differ",
            self.runs, self.vps, self.microprocesses, self.steps
        )?;
        match self.overlap_count {
            0 => writeln!(f, "states: none overlap; no microprocess is on two VPs")?,
            n => writeln!(f, "states: {n} OVERLAP")?,
        }
        self.overlaps.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        match (self.beyond, self.steps) {
            (0, 0) if self.untold => {
                writeln!(f, "priorities: levels differ, but no steps are recorded")?
            }
            (0, 0) => writeln!(f, "priorities: exact; all microprocesses have the same level")?,
            (0, _) => writeln!(f, "priorities: exact but for {} steps of a VP", self.bound)?,
            (n, _) => writeln!(
                f,
                "priorities: {n} INVERSIONS beyond the bound of {} steps of a VP",
                self.bound
            )?,
        }
        if self.steps > 0 {
            writeln!(
                f,
                "  {} microprocesses were sent to a VP that ran a lower level; after {} steps, one still waited",
                self.sent, self.inverted
            )?;
        }
        for longest in [&self.kept, &self.missed].into_iter().flatten() {
            writeln!(f, "  longest: {longest}")?;
        }
        if self.lost > 0 {
            writeln!(
                f,
                "lost: {} records; a larger buffer (kumi trace --buffer) may help",
                self.lost
            )?;
        }
        if !self.ends {
            writeln!(f, "the trace ends before its run does")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(f)?;
        write!(f, "{}", self.verdict())
    }
}

/// Checks the trace in `path`. `bound` is the number of steps of a VP that an inversion may last;
/// the default is [`BOUND`].
///
/// # Errors
/// Returns an error if the file cannot be read or is not a trace.
pub fn check(path: &Path, bound: Option<u64>) -> io::Result<Report> {
    let mut checker = Checker::new(bound);
    let mut reader = Reader::open(path)?;
    while let Some(event) = reader.next_event()? {
        checker.take(&event, &reader.tracks)?;
    }
    Ok(checker.report())
}

/// The results for several processes, individually and together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Together {
    /// The report of each file.
    pub each: Vec<(PathBuf, Report)>,
    /// The report for the board; None for a single file of a process that requested no core there.
    pub board: Option<board_order::BoardReport>,
}

impl Together {
    /// Returns the verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let all = || {
            self.each
                .iter()
                .map(|(_, report)| report.verdict())
                .chain(self.board.iter().map(|board| board.verdict()))
        };
        // The missing records may be the ones that disprove a violation.
        [Verdict::Incomplete, Verdict::Violated]
            .into_iter()
            .find(|wrong| all().any(|one| one == *wrong))
            .unwrap_or(Verdict::Holds)
    }
}

impl fmt::Display for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (path, report) in &self.each {
            if self.each.len() > 1 {
                writeln!(f, "{}:", path.display())?;
            }
            report.describe(f)?;
        }
        if let Some(board) = &self.board {
            writeln!(f, "{board}")?;
        }
        write!(f, "{}", self.verdict())
    }
}

/// Checks the traces in `paths`, each as [`check`] does, and whether priorities are exact over the
/// board for all of them together.
///
/// # Errors
/// Returns an error if a file cannot be read or is not a trace, or if the files do not belong
/// together.
pub fn check_together(paths: &[PathBuf], bound: Option<u64>) -> io::Result<Together> {
    let mut merge = Merge::new(bound.unwrap_or(BOUND));
    let mut each = Vec::new();
    for path in paths {
        let at = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        // The error of opening already names the file.
        let mut reader = Reader::open(path)?;
        let mut checker = Checker::new(bound);
        merge.begin(path);
        while let Some(event) = reader.next_event().map_err(at)? {
            checker.take(&event, &reader.tracks).map_err(at)?;
            // The lookup succeeds: `Checker::take` has checked the track.
            merge.take(&event, &reader.tracks[&event.track])?;
        }
        each.push((path.clone(), checker.report()));
    }
    Ok(Together { each, board: merge.report()? })
}

/// Checks the events of a trace one by one.
#[derive(Debug)]
pub struct Checker {
    bound: u64,
    runs: HashMap<u64, Run>,
    overlaps: Vec<String>,
    overlap_count: u64,
}

impl Checker {
    /// Creates a checker; `bound` is that of [`check`].
    #[must_use]
    pub fn new(bound: Option<u64>) -> Checker {
        Checker {
            bound: bound.unwrap_or(BOUND),
            runs: HashMap::new(),
            overlaps: Vec::new(),
            overlap_count: 0,
        }
    }

    /// Checks the next event. `tracks` contains the tracks described so far.
    ///
    /// # Errors
    /// Returns an error if the event's track is not among them, or if its run has more VPs than a
    /// runtime can have.
    pub fn take(&mut self, event: &Event, tracks: &HashMap<u64, Track>) -> io::Result<()> {
        let Some(track) = tracks.get(&event.track) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "an event on a track that is not described",
            ));
        };
        // All VPs are described before the first event.
        let run = match self.runs.entry(track.run) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Run::new(Steps::new(tracks, track.run, self.bound)?)),
        };
        if let Some(wrong) = run.take(event, track) {
            self.overlap_count += 1;
            run.steps.findings.add(Finding {
                run: track.run,
                track: event.track,
                from: event.at,
                to: event.at,
                kind: FindingKind::Contradiction,
                text: format!("{}: {wrong}", track.name),
            });
            if self.overlaps.len() < DESCRIBED {
                self.overlaps.push(format!(
                    "at {:.3} us: {}: {wrong}",
                    event.at as f64 / 1e3,
                    track.name
                ));
            }
        }
        Ok(())
    }

    /// Returns the report.
    #[must_use]
    pub fn report(mut self) -> Report {
        let mut report = Report {
            runs: self.runs.len(),
            vps: 0,
            microprocesses: 0,
            steps: 0,
            sent: 0,
            inverted: 0,
            kept: None,
            missed: None,
            beyond: 0,
            bound: self.bound,
            untold: false,
            overlaps: self.overlaps,
            overlap_count: self.overlap_count,
            findings: Vec::new(),
            lost: 0,
            ends: !self.runs.is_empty(),
        };
        let mut runs: Vec<_> = self.runs.drain().collect();
        runs.sort_unstable_by_key(|(uuid, _)| *uuid);
        for (_, mut run) in runs {
            report.vps = report.vps.max(run.steps.vps());
            report.microprocesses += run.spawned;
            report.steps += run.steps.steps;
            report.sent += run.steps.sent;
            report.inverted += run.steps.inverted;
            report.beyond += run.steps.beyond;
            report.untold |= run.levels.len() > 1 && run.steps.steps == 0;
            report.lost = report.lost.saturating_add(run.lost);
            report.ends &= run.ended;
            report.findings.extend(run.steps.all_findings());
            longer(&mut report.kept, run.steps.kept);
            longer(&mut report.missed, run.steps.missed);
        }
        report
    }
}

/// One run of a runtime.
#[derive(Debug)]
struct Run {
    /// The open slices of each track.
    open: HashMap<u64, Vec<Rc<str>>>,
    /// Tracks of the microprocesses that are suspended until they are resumed.
    held: HashSet<u64>,
    /// The levels at which microprocesses ran.
    levels: BTreeSet<u64>,
    steps: Steps,
    spawned: u64,
    lost: u64,
    ended: bool,
}

impl Run {
    fn new(steps: Steps) -> Run {
        Run {
            open: HashMap::new(),
            held: HashSet::new(),
            levels: BTreeSet::new(),
            steps,
            spawned: 0,
            lost: 0,
            ended: false,
        }
    }

    /// Checks an event, and returns a description if it contradicts the state.
    fn take(&mut self, event: &Event, track: &Track) -> Option<String> {
        match event.kind {
            SLICE_BEGIN => {
                let mut runs_on = false;
                if track.of == Of::Micro {
                    let was_held = self.held.remove(&event.track);
                    match State::from_name(&event.name) {
                        Some(State::Running) => {
                            self.levels.extend(event.number("level"));
                            runs_on = was_held;
                        }
                        Some(State::Parked)
                            if event.text("for") == Some(WAITS[usize::from(WAIT_RESUME)]) =>
                        {
                            self.held.insert(event.track);
                        }
                        _ => {}
                    }
                }
                let open = self.open.entry(event.track).or_default();
                open.push(event.name.clone());
                if runs_on {
                    return Some("runs although it was not resumed".to_owned());
                }
                (open.len() > 1)
                    .then(|| format!("{} starts inside {}", event.name, open[open.len() - 2]))
            }
            SLICE_END => {
                let open = self.open.entry(event.track).or_default();
                open.pop().is_none().then(|| "a state ends that has not started".to_owned())
            }
            INSTANT => {
                self.instant(event, track);
                None
            }
            _ => None,
        }
    }

    fn instant(&mut self, event: &Event, track: &Track) {
        let found = |kind, text| Finding {
            run: track.run,
            track: event.track,
            from: event.at,
            to: event.at,
            kind,
            text,
        };
        if &*event.name == NAMES[LOST] {
            let lost = event.number("count").unwrap_or(1);
            self.lost = self.lost.saturating_add(lost);
            let writer = event.text("writer").unwrap_or("?");
            let text = format!("{lost} records of {writer} found no room before this moment");
            self.steps.findings.add(found(FindingKind::Lost, text));
        } else if &*event.name == NAMES[OVERRIDDEN] {
            let text =
                format!("{} was overridden: its thread is stuck in the scheduler", track.name);
            self.steps.findings.add(found(FindingKind::Stall, text));
            self.steps.take(event);
        } else if &*event.name == NAMES[SPAWNED] {
            self.spawned += 1;
        } else if event.summary().is_some() {
            self.ended = true;
        } else {
            self.steps.take(event);
        }
    }
}
