//! Proves from a trace that states never overlap and that priorities are exact.
//!
//! *Exact* (P0, 3.4): an *inversion* of a microprocess lasts as long as it is queued (Ready) while one of a lower level runs anywhere. What
//! counts is how many scheduling steps (a microprocess begins to run, on any VP) fall into it. Time does not: a kernel that gives a core to
//! somebody else makes no scheduler wrong.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::path::Path;
use std::rc::Rc;

use crate::perfetto::{INSTANT, SLICE_BEGIN, SLICE_END};
use crate::read::{Event, Of, Reader, Track};
use crate::words::{LOST, NAMES, PRIORITY, SPAWNED, State};

/// Levels are 0 to 63.
const LEVELS: usize = 64;
/// Contradictions that are described; the rest is counted.
const DESCRIBED: usize = 20;

/// The bound on the steps of an inversion unless another is given: each VP makes a step or two before it hears of the one that waits.
#[must_use]
pub fn default_bound(vps: usize) -> u64 {
    2 * vps as u64 + 2
}

/// One queued while one of a lower level ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inversion {
    /// Scheduling steps in it.
    pub steps: u64,
    /// Who was queued.
    pub who: String,
    /// At which level.
    pub level: u8,
    /// From when to when, in nanoseconds since the begin of the run.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// One of the lowest of those who ran meanwhile, and its level.
    pub behind: Option<(String, u8)>,
}

impl fmt::Display for Inversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        write!(
            f,
            "{} steps: {} was Ready at level {} from {:.3} us, for {:.3} us",
            self.steps,
            self.who,
            self.level,
            us(self.from),
            us(self.to - self.from)
        )?;
        match &self.behind {
            Some((who, level)) => write!(f, ", while {who} ran at level {level}"),
            None => Ok(()),
        }
    }
}

/// What a trace proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All that was asked for.
    Holds,
    /// Something is wrong.
    Violated,
    /// Nothing: records were lost, or the trace ends too early.
    Incomplete,
}

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
    /// Scheduling steps.
    pub steps: u64,
    /// The inversion with most steps.
    pub longest: Option<Inversion>,
    /// Inversions beyond the bound.
    pub beyond: u64,
    /// The bound that held for `longest`'s run.
    pub bound: u64,
    /// States that overlap, and ends without a begin: the first twenty.
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
        if self.lost > 0 || !self.ends {
            Verdict::Incomplete
        } else if self.beyond > 0 || self.overlap_count > 0 {
            Verdict::Violated
        } else {
            Verdict::Holds
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} run(s), up to {} VPs, {} microprocesses, {} scheduling steps",
            self.runs, self.vps, self.microprocesses, self.steps
        )?;
        match self.overlap_count {
            0 => writeln!(f, "states: none overlap; no microprocess is on two VPs")?,
            n => writeln!(f, "states: {n} OVERLAP")?,
        }
        self.overlaps.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        match &self.longest {
            None => writeln!(f, "priorities: exact; none was Ready while a lower one ran")?,
            Some(longest) => {
                writeln!(f, "priorities: {} beyond the bound of {} steps", self.beyond, self.bound)?;
                writeln!(f, "  longest: {longest}")?;
            }
        }
        if self.lost > 0 {
            writeln!(f, "lost: {} records; a larger buffer (KUMI_TRACE_BUFFER) may help", self.lost)?;
        }
        if !self.ends {
            writeln!(f, "the trace ends before its run does")?;
        }
        write!(
            f,
            "{}",
            match self.verdict() {
                Verdict::Holds => "holds",
                Verdict::Violated => "VIOLATED",
                Verdict::Incomplete => "incomplete: nothing is proved",
            }
        )
    }
}

/// Checks the trace in `path`. `bound`: steps of an inversion that are allowed; none: [`default_bound`].
///
/// # Errors
/// The file cannot be read, or is no trace.
pub fn check(path: &Path, bound: Option<u64>) -> io::Result<Report> {
    let mut checker = Checker::new(bound);
    let mut reader = Reader::open(path)?;
    while let Some(event) = reader.next_event()? {
        match reader.tracks.get(&event.track) {
            Some(track) => checker.take(&event, track),
            None => return Err(io::Error::new(io::ErrorKind::InvalidData, "an event on a track that is not told of")),
        }
    }
    Ok(checker.report(&reader.tracks))
}

/// Takes the events of a trace one by one.
#[derive(Debug, Default)]
pub struct Checker {
    bound: Option<u64>,
    runs: HashMap<u64, Run>,
    overlaps: Vec<String>,
    overlap_count: u64,
}

impl Checker {
    /// `bound`: as for [`check`].
    #[must_use]
    pub fn new(bound: Option<u64>) -> Checker {
        Checker { bound, ..Checker::default() }
    }

    /// The next event, and the track that it is on.
    pub fn take(&mut self, event: &Event, track: &Track) {
        let run = self.runs.entry(track.run).or_default();
        if let Some(wrong) = run.take(event, track) {
            self.overlap_count += 1;
            if self.overlaps.len() < DESCRIBED {
                self.overlaps.push(format!("at {:.3} us: {}: {wrong}", event.at as f64 / 1e3, track.name));
            }
        }
    }

    /// The outcome.
    #[must_use]
    pub fn report(mut self, tracks: &HashMap<u64, Track>) -> Report {
        let mut report = Report {
            runs: self.runs.len(),
            vps: 0,
            microprocesses: 0,
            steps: 0,
            longest: None,
            beyond: 0,
            bound: self.bound.unwrap_or(default_bound(1)),
            overlaps: self.overlaps,
            overlap_count: self.overlap_count,
            lost: 0,
            ends: !self.runs.is_empty(),
        };
        let mut runs: Vec<_> = self.runs.drain().collect();
        runs.sort_unstable_by_key(|(uuid, _)| *uuid);
        for (uuid, mut run) in runs {
            run.all_over();
            let vps = tracks.values().filter(|track| track.of == Of::Vp && track.run == uuid).count();
            let bound = self.bound.unwrap_or(default_bound(vps));
            report.vps = report.vps.max(vps);
            report.microprocesses += run.spawned;
            report.steps += run.steps;
            report.lost += run.lost;
            report.ends &= run.ended;
            report.beyond += run.inversions.range(bound + 1..).map(|(_, n)| n).sum::<u64>();
            if run.longest.as_ref().map(|l| l.steps) > report.longest.as_ref().map(|l| l.steps) {
                report.longest = run.longest;
                report.bound = bound;
            }
        }
        report
    }
}

/// A microprocess that is Ready or Running.
#[derive(Debug)]
struct Active {
    name: Rc<str>,
    state: State,
    level: u8,
    /// Ready: `steps_below` of its level when it came there.
    since_steps: u64,
    since: u64,
}

/// One run of a runtime.
#[derive(Debug)]
struct Run {
    /// Slices open on each track.
    open: HashMap<u64, Vec<Rc<str>>>,
    active: HashMap<u64, Active>,
    running: [u32; LEVELS],
    /// Who began to run at each level last.
    latest: [Option<Rc<str>>; LEVELS],
    /// For each level: the lowest that ran at the last step that counted for it.
    lowest_at: [u8; LEVELS],
    /// Ready ones, by level: since how many steps, and who.
    ready: [BTreeSet<(u64, u64)>; LEVELS],
    /// For each level: steps so far that fell into times when one below it ran.
    steps_below: [u64; LEVELS],
    /// The same, when last nobody below it ran.
    reset: [u64; LEVELS],
    steps: u64,
    spawned: u64,
    lost: u64,
    ended: bool,
    now: u64,
    /// One has left a VP at this moment.
    left: bool,
    /// How many inversions of how many steps.
    inversions: std::collections::BTreeMap<u64, u64>,
    longest: Option<Inversion>,
}

impl Default for Run {
    fn default() -> Run {
        Run {
            open: HashMap::new(),
            active: HashMap::new(),
            running: [0; LEVELS],
            latest: [const { None }; LEVELS],
            lowest_at: [0; LEVELS],
            ready: std::array::from_fn(|_| BTreeSet::new()),
            steps_below: [0; LEVELS],
            reset: [0; LEVELS],
            steps: 0,
            spawned: 0,
            lost: 0,
            ended: false,
            now: 0,
            left: false,
            inversions: Default::default(),
            longest: None,
        }
    }
}

impl Run {
    /// A complaint, if there is one.
    fn take(&mut self, event: &Event, track: &Track) -> Option<String> {
        // A switch is several events of one moment: one leaves, the next one runs. What is over is seen after it.
        if event.at != self.now && std::mem::take(&mut self.left) {
            (0..=self.lowest().min(LEVELS - 1)).for_each(|level| self.over(level));
        }
        self.now = event.at;
        let wrong = match event.kind {
            SLICE_BEGIN => {
                let open = self.open.entry(event.track).or_default();
                open.push(event.name.clone());
                (open.len() > 1).then(|| format!("{} begins inside {}", event.name, open[open.len() - 2]))
            }
            SLICE_END => {
                let open = self.open.entry(event.track).or_default();
                open.pop().is_none().then(|| "a state ends that has not begun".to_owned())
            }
            _ => None,
        };
        if event.kind == INSTANT {
            self.instant(event);
        }
        if track.of == Of::Micro && event.kind != INSTANT {
            self.leaves(event.track);
            if let Some(state) = State::from_name(&event.name) {
                self.enters(event, track, state);
            }
        }
        wrong
    }

    fn instant(&mut self, event: &Event) {
        if &*event.name == NAMES[LOST] {
            self.lost += event.number("count").unwrap_or(1);
        } else if &*event.name == NAMES[SPAWNED] {
            self.spawned += 1;
        } else if event.summary().is_some() {
            self.ended = true;
        } else if &*event.name == NAMES[PRIORITY]
            && let Some(level) = event.number("level")
            && let Some(mut active) = self.remove(event.track)
        {
            active.level = (level as u8).min(LEVELS as u8 - 1);
            self.insert(event.track, active);
        }
    }

    fn enters(&mut self, event: &Event, track: &Track, state: State) {
        if matches!(state, State::Running | State::Ready)
            && let Some(level) = event.number("level")
        {
            let level = (level as u8).min(LEVELS as u8 - 1);
            let name = track.name.clone();
            self.insert(event.track, Active { name, state, level, since_steps: 0, since: event.at });
        }
        if state == State::Running {
            // Counted for all above those who run now, the one that begins among them.
            self.step();
        }
    }

    fn leaves(&mut self, who: u64) {
        self.remove(who);
    }

    fn lowest(&self) -> usize {
        self.running.iter().position(|&n| n > 0).unwrap_or(LEVELS)
    }

    fn step(&mut self) {
        self.steps += 1;
        let lowest = self.lowest();
        for level in (lowest + 1).min(LEVELS)..LEVELS {
            self.steps_below[level] += 1;
            self.lowest_at[level] = lowest as u8;
        }
    }

    fn insert(&mut self, who: u64, mut active: Active) {
        let level = usize::from(active.level);
        if active.state == State::Running {
            self.running[level] += 1;
            self.latest[level] = Some(active.name.clone());
        } else {
            active.since_steps = self.steps_below[level];
            active.since = self.now;
            self.ready[level].insert((active.since_steps, who));
        }
        self.active.insert(who, active);
    }

    fn remove(&mut self, who: u64) -> Option<Active> {
        let active = self.active.remove(&who)?;
        let level = usize::from(active.level);
        if active.state == State::Running {
            self.running[level] -= 1;
            self.left = true;
        } else {
            self.ready[level].remove(&(active.since_steps, who));
            self.settle(level, &active);
        }
        Some(active)
    }

    /// The inversions at `level` are over.
    fn over(&mut self, level: usize) {
        if self.reset[level] == self.steps_below[level] {
            return;
        }
        // The longest of them is that of whoever came first; the others were shorter, and are over too.
        if let Some(&(_, who)) = self.ready[level].first()
            && let Some(active) = self.active.remove(&who)
        {
            self.settle(level, &active);
            self.active.insert(who, active);
        }
        self.reset[level] = self.steps_below[level];
    }

    fn settle(&mut self, level: usize, active: &Active) {
        let steps = self.steps_below[level] - self.reset[level].max(active.since_steps);
        if steps == 0 {
            return;
        }
        *self.inversions.entry(steps).or_default() += 1;
        if self.longest.as_ref().is_none_or(|longest| steps > longest.steps) {
            let lowest = self.lowest_at[level];
            let behind = self.latest[usize::from(lowest)].as_ref().map(|who| (who.to_string(), lowest));
            let (who, level, from, to) = (active.name.to_string(), active.level, active.since, self.now);
            self.longest = Some(Inversion { steps, who, level, from, to, behind });
        }
    }

    fn all_over(&mut self) {
        (0..LEVELS).for_each(|level| self.over(level));
    }
}
