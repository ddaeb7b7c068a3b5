//! Proves from a trace that states never overlap and that priorities are exact.
//!
//! States are slices on the track of each microprocess. One that is held until somebody resumes it
//! is made ready before it runs. What exact means, and how it is counted:
//! [`crate::check::priority_order`].

pub(crate) mod board_order;
pub mod priority_order;
mod verdict;

pub use verdict::Verdict;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::capture::record::{WAIT_RESUME, WAITS};
use crate::format::names::{LOST, NAMES, SPAWNED, State};
use crate::format::perfetto::{INSTANT, SLICE_BEGIN, SLICE_END};
use crate::read::{Event, Of, Reader, Track};
use board_order::Merge;
use priority_order::{BOUND, Inversion, Steps, longer};

/// Contradictions that are described; the rest is counted.
const DESCRIBED: usize = 20;

/// The outcome of [`check`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Runs in the file.
    pub runs: usize,
    /// Virtual processors, in the run that has most.
    pub vps: usize,
    /// Microprocesses.
    pub microprocesses: u64,
    /// Scheduling steps with levels that differ; without such there is nothing to prove about
    /// priorities.
    pub steps: u64,
    /// Times that something was sent to a VP that ran something lower: inversions that were ended,
    /// or did not come about.
    pub sent: u64,
    /// Steps after which something waited still that outranked what another VP ran.
    pub inverted: u64,
    /// The longest time, in its own steps, that a VP kept what outranked another's.
    pub kept: Option<Inversion>,
    /// The longest time, in its own steps, that a VP ran something lower than what waited there.
    pub missed: Option<Inversion>,
    /// Inversions beyond the bound.
    pub beyond: u64,
    /// The bound: steps in a row of one VP.
    pub bound: u64,
    /// A run has several levels and no steps: it comes from a runtime that does not tell of them.
    pub untold: bool,
    /// States that overlap, ends without a begin, and microprocesses that run although nothing
    /// resumed them: the first twenty.
    pub overlaps: Vec<String>,
    /// How many there are.
    pub overlap_count: u64,
    /// Records that are missing.
    pub lost: u64,
    /// Every run comes to its end.
    pub ends: bool,
}

impl Report {
    /// What is proved.
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
    /// All but the verdict, in lines.
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
                writeln!(f, "priorities: levels differ, and no steps are recorded")?
            }
            (0, 0) => writeln!(f, "priorities: exact; all have one level")?,
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
                "  {} times one was sent to a VP that ran a lower one; {} steps left one waiting all the same",
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

/// Checks the trace in `path`. `bound`: steps of a VP that an inversion may last; none: [`BOUND`].
///
/// # Errors
/// The file cannot be read, or is no trace.
pub fn check(path: &Path, bound: Option<u64>) -> io::Result<Report> {
    let mut checker = Checker::new(bound);
    let mut reader = Reader::open(path)?;
    while let Some(event) = reader.next_event()? {
        checker.take(&event, &reader.tracks)?;
    }
    Ok(checker.report())
}

/// What the traces of several processes prove, each by itself and all together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Together {
    /// Of each file.
    pub each: Vec<(PathBuf, Report)>,
    /// Over the board; none: a single file, of a process that asked for no core there.
    pub board: Option<board_order::BoardReport>,
}

impl Together {
    /// What is proved.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let all = || {
            self.each
                .iter()
                .map(|(_, report)| report.verdict())
                .chain(self.board.iter().map(|board| board.verdict()))
        };
        // What is missing may be what shows that all was well.
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

/// Checks the traces in `paths`, each as [`check`] does, and all of them together: whether
/// priorities are exact over the board.
///
/// # Errors
/// A file cannot be read, or is no trace; they do not belong together.
pub fn check_together(paths: &[PathBuf], bound: Option<u64>) -> io::Result<Together> {
    let mut merge = Merge::new(bound.unwrap_or(BOUND));
    let mut each = Vec::new();
    for path in paths {
        let at = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        // What opening says names the file.
        let mut reader = Reader::open(path)?;
        let mut checker = Checker::new(bound);
        merge.begin(path);
        while let Some(event) = reader.next_event().map_err(at)? {
            checker.take(&event, &reader.tracks).map_err(at)?;
            // It is on one of them: see `Checker::take`.
            merge.take(&event, &reader.tracks[&event.track])?;
        }
        each.push((path.clone(), checker.report()));
    }
    Ok(Together { each, board: merge.report()? })
}

/// Takes the events of a trace one by one.
#[derive(Debug)]
pub struct Checker {
    bound: u64,
    runs: HashMap<u64, Run>,
    overlaps: Vec<String>,
    overlap_count: u64,
}

impl Checker {
    /// `bound`: as for [`check`].
    #[must_use]
    pub fn new(bound: Option<u64>) -> Checker {
        Checker {
            bound: bound.unwrap_or(BOUND),
            runs: HashMap::new(),
            overlaps: Vec::new(),
            overlap_count: 0,
        }
    }

    /// The next event; `tracks` are those told of so far.
    ///
    /// # Errors
    /// Its track is none of those.
    pub fn take(&mut self, event: &Event, tracks: &HashMap<u64, Track>) -> io::Result<()> {
        let Some(track) = tracks.get(&event.track) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "an event on a track that is not told of",
            ));
        };
        // All VPs are told of before anything happens.
        let run = self
            .runs
            .entry(track.run)
            .or_insert_with(|| Run::new(Steps::new(tracks, track.run, self.bound)));
        if let Some(wrong) = run.take(event, track) {
            self.overlap_count += 1;
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

    /// The outcome.
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
            lost: 0,
            ends: !self.runs.is_empty(),
        };
        let mut runs: Vec<_> = self.runs.drain().collect();
        runs.sort_unstable_by_key(|(uuid, _)| *uuid);
        for (_, run) in runs {
            report.vps = report.vps.max(run.steps.vps());
            report.microprocesses += run.spawned;
            report.steps += run.steps.steps;
            report.sent += run.steps.sent;
            report.inverted += run.steps.inverted;
            report.beyond += run.steps.beyond;
            report.untold |= run.levels.len() > 1 && run.steps.steps == 0;
            report.lost += run.lost;
            report.ends &= run.ended;
            longer(&mut report.kept, run.steps.kept);
            longer(&mut report.missed, run.steps.missed);
        }
        report
    }
}

/// One run of a runtime.
#[derive(Debug)]
struct Run {
    /// Slices open on each track.
    open: HashMap<u64, Vec<Rc<str>>>,
    /// Tracks of those that are held until somebody resumes them.
    held: HashSet<u64>,
    /// At which something ran.
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

    /// A complaint, if there is one.
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
                    return Some("runs although nobody has resumed it".to_owned());
                }
                (open.len() > 1)
                    .then(|| format!("{} begins inside {}", event.name, open[open.len() - 2]))
            }
            SLICE_END => {
                let open = self.open.entry(event.track).or_default();
                open.pop().is_none().then(|| "a state ends that has not begun".to_owned())
            }
            INSTANT => {
                self.instant(event);
                None
            }
            _ => None,
        }
    }

    fn instant(&mut self, event: &Event) {
        if &*event.name == NAMES[LOST] {
            self.lost += event.number("count").unwrap_or(1);
        } else if &*event.name == NAMES[SPAWNED] {
            self.spawned += 1;
        } else if event.summary().is_some() {
            self.ended = true;
        } else {
            self.steps.take(event);
        }
    }
}
