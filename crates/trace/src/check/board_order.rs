//! Checks whether priorities are exact over a board, from the traces of several address spaces.
//!
//! A core's slot contains the VP that has the core, and its serial number increases by one with
//! every change. Each VP records the slot whenever it has requested its core
//! ([`Kind::Asked`](crate::capture::record::Kind::Asked)), and each change that it makes
//! ([`Kind::Slot`](crate::capture::record::Kind::Slot)). Serial numbers alone therefore order the
//! events of different processes on a core, and no clocks are compared.
//!
//! As within one address space ([`super::priority_order`]), an inversion is measured in consecutive
//! steps of the VP that has to end it. A step is one reading of the slot:
//!
//! - *kept*: a VP continues to run although another VP has its core, or waits for it at a higher
//!   level;
//! - *missed*: a VP waits for a core that is free, or held at a lower level.
//!
//! A VP *waits* in an interval of serial numbers if it requested the core before it read serial
//! `s`, and still does when it reads `e`. The slot's contents after `s` and up to `e` then existed
//! while this VP waited. The interval ends early at a change that is not known, and at a change
//! that gave the VP the core. Changes by address spaces whose trace is missing are unknown. It is
//! also unknown whether a VP that was given the core, and did not take it in time, still waits.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::priority_order::{Fault, Streak};
use super::verdict::Verdict;
use crate::capture::record::Holder;
use crate::format::names::{
    ARGUMENTS, ASKED_CORE, BOARD, BOARD_ID, CORE, HAS, LEAVES, MARK, NAMES, Name, PROCESS, ROW,
    RUNS, SERIAL, SLOT, VP, WANTS,
};
use crate::read::{Event, Of, Track};

/// A VP of a lower mark ran or waited in place of a higher one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardInversion {
    /// The kind of inversion.
    pub fault: Fault,
    /// Number of steps of the VP that had to end it.
    pub steps: u64,
    /// Name of that VP.
    pub who: String,
    /// The core.
    pub core: u64,
    /// The mark of that VP: two more than its level.
    pub mark: u8,
    /// Start of its first step, in nanoseconds since the start of its run.
    pub from: u64,
    /// End of its last step; see `from`.
    pub to: u64,
    /// The holder of the core at the last step, or the waiter: name, mark, and whether it waited.
    /// None: the core was free.
    pub other: Option<(String, u8, bool)>,
}

struct Level(u8);

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.checked_sub(2) {
            Some(level) => write!(f, "at level {level}"),
            None => f.write_str("below all levels"),
        }
    }
}

impl fmt::Display for BoardInversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        let did = if self.fault == Fault::Kept { "ran on" } else { "waited" };
        let (name, level, core) = (&self.who, Level(self.mark), self.core);
        write!(
            f,
            "{} step(s) of {name}: it {did} {level}, from {:.3} us to {:.3} us, ",
            self.steps,
            us(self.from),
            us(self.to)
        )?;
        match &self.other {
            Some((other, mark, true)) => {
                write!(f, "while {other} waited for core {core} {}", Level(*mark))
            }
            Some((other, mark, false)) => {
                write!(f, "while {other} had core {core} {}", Level(*mark))
            }
            None => write!(f, "while no VP had core {core}"),
        }
    }
}

/// The joint result for address spaces at one board.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoardReport {
    /// Number of runs that requested cores.
    pub runs: usize,
    /// Number of cores that were requested.
    pub cores: usize,
    /// Number of readings of slots.
    pub looks: u64,
    /// Number of times that a VP found that another VP had its core, and yielded.
    pub gave_way: u64,
    /// The longest inversion, in steps of the VP, in which a VP continued to run.
    pub kept: Option<BoardInversion>,
    /// The longest inversion, in steps of the VP, in which a VP waited unnecessarily.
    pub missed: Option<BoardInversion>,
    /// Number of inversions beyond the bound.
    pub beyond: u64,
    /// The bound, in consecutive steps of one VP.
    pub bound: u64,
    /// Number of changes of slots that are in none of the files.
    pub unseen: u64,
    /// Names of the runs that shared no core with another file's run.
    pub apart: Vec<String>,
}

impl BoardReport {
    /// Returns the verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if !self.apart.is_empty() {
            Verdict::Incomplete
        } else if self.beyond > 0 {
            Verdict::Violated
        } else {
            Verdict::Holds
        }
    }
}

impl fmt::Display for BoardReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BoardReport { runs, cores, looks, gave_way, bound, .. } = self;
        writeln!(
            f,
            "the board: {runs} run(s) on {cores} core(s), {looks} steps, {gave_way} times a VP yielded to another"
        )?;
        match self.beyond {
            0 => write!(f, "priorities over the board: exact but for {bound} steps of a VP")?,
            n => write!(
                f,
                "priorities over the board: {n} INVERSIONS beyond the bound of {bound} steps of a VP"
            )?,
        }
        for longest in [&self.kept, &self.missed].into_iter().flatten() {
            write!(f, "\n  longest: {longest}")?;
        }
        if self.unseen > 0 {
            write!(
                f,
                "\n  {} changes of slots are in none of these files, so the waiters at that time are unknown",
                self.unseen
            )?;
        }
        for name in &self.apart {
            write!(f, "\n{name} shared no core with the others while it was traced")?;
        }
        Ok(())
    }
}

/// A run of an address space at the board.
#[derive(Debug)]
struct Run {
    file: usize,
    board: String,
    row: u64,
    process: u64,
    program: String,
    looks: u64,
}

/// A reading of a slot by a VP; a VP's readings are in order of time.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Nanoseconds since the start of its run.
    at: u64,
    until: u64,
    serial: u64,
    holder: Option<Holder>,
    /// The VP's mark; 0 if it does not want the core or may not have it.
    wants: u8,
    has: bool,
    runs: bool,
    /// Number of consecutive readings with this result.
    times: u64,
}

impl Look {
    fn same(&self, other: &Look) -> bool {
        let of = |look: &Look| (look.serial, look.holder, look.wants, look.has, look.runs);
        of(self) == of(other)
    }

    fn waits(&self) -> bool {
        !self.has && self.wants > 0
    }
}

/// A VP waits at `mark` while the slot's serial is above `after` and at most `until`.
#[derive(Clone, Copy, Debug)]
struct Wish {
    mark: u8,
    after: u64,
    until: u64,
}

/// A VP: its run and its number.
type Who = (usize, u8);

#[derive(Debug, Default)]
struct Core {
    /// The last serial number read by each run, and the very first one. Records contain 30 bits of
    /// it.
    last: HashMap<usize, u64>,
    first: Option<u64>,
    /// The slot's content by serial number, and the run that reported it first.
    words: BTreeMap<u64, (Option<Holder>, usize)>,
    vps: BTreeMap<Who, Vec<Look>>,
}

/// Base of the first serial number. It leaves room below, because other runs may have started
/// earlier. Two readings differ by less than 2^29, so no file is long enough to reach 0 or the end.
const FIRST: u64 = 1 << 62;
/// Bits of a serial number in a record.
const BITS: u64 = (1 << 30) - 1;

impl Core {
    /// Returns the full serial number: the one nearest to the last number that `run` read, or
    /// otherwise to the first of all.
    fn whole(&mut self, run: usize, serial: u64) -> u64 {
        let serial = serial & BITS;
        let near = self.last.get(&run).copied().or(self.first).unwrap_or(FIRST + serial);
        let step = ((serial as u32).wrapping_sub(near as u32) << 2).cast_signed() >> 2;
        let whole = near.wrapping_add_signed(step.into());
        self.first.get_or_insert(whole);
        self.last.insert(run, whole);
        whole
    }

    /// Returns the intervals in which the VP `(row, vp)` with these readings certainly waited.
    fn wishes(&self, (row, vp): (u64, u8), looks: &[Look]) -> Vec<Wish> {
        let is_own = |holder: &Option<Holder>| {
            holder.is_some_and(|holder| (u64::from(holder.row), holder.vp) == (row, vp))
        };
        let wish = |(look, next): (&Look, &Look)| {
            let mut wish = Wish { mark: look.wants, after: look.serial, until: next.serial };
            if next.waits() || next.has {
                // Between the readings, the VP may have changed its mark, so the smaller one
                // counts.
                wish.mark = wish.mark.min(next.wants);
            } else {
                // The VP read this serial before it withdrew its request, which it may not have
                // done at that time.
                wish.until = wish.until.saturating_sub(1);
            }
            let known = self.words.range(wish.after + 1..wish.until.max(wish.after) + 1);
            let surely = known
                .zip(wish.after + 1..)
                .take_while(|((serial, (holder, _)), due)| *serial == due && !is_own(holder));
            wish.until = wish.after + surely.count() as u64;
            (wish.until > wish.after).then_some(wish)
        };
        looks
            .iter()
            .zip(looks.iter().skip(1))
            .filter(|(look, _)| look.waits())
            .filter_map(wish)
            .collect()
    }
}

/// Processes the events of several traces, one file after the other.
#[derive(Debug)]
pub struct Merge {
    bound: u64,
    files: Vec<PathBuf>,
    runs: Vec<Run>,
    /// Indexed by file and track.
    index: HashMap<(usize, u64), usize>,
    cores: BTreeMap<u64, Core>,
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn number(event: &Event, name: Name) -> Option<u64> {
    event.number(ARGUMENTS[name])
}

impl Merge {
    /// Creates an empty merge. `bound`: number of steps of a VP that an inversion may last.
    #[must_use]
    pub fn new(bound: u64) -> Merge {
        Merge {
            bound,
            files: Vec::new(),
            runs: Vec::new(),
            index: HashMap::new(),
            cores: BTreeMap::new(),
        }
    }

    /// Starts a file; subsequent events belong to it.
    pub fn begin(&mut self, file: &Path) {
        self.files.push(file.to_owned());
    }

    /// Processes the next event of the file, which is on `track`.
    ///
    /// # Errors
    /// Returns `InvalidData` if the file does not belong to the previous ones.
    pub fn take(&mut self, event: &Event, track: &Track) -> io::Result<()> {
        let file = self.files.len() - 1;
        let is = |name: Name| &*event.name == NAMES[name];
        if track.of == Of::Process && is(BOARD) {
            return self.add_run(file, event, track);
        }
        let what = match track.of {
            Of::Core if is(SLOT) => None,
            Of::Vp if is(ASKED_CORE) || is(LEAVES) => {
                track.name.strip_prefix("VP ").and_then(|vp| vp.parse::<u8>().ok())
            }
            _ => return Ok(()),
        };
        let (Some(&run), Some(number_of_core), Some(serial)) =
            (self.index.get(&(file, track.run)), number(event, CORE), number(event, SERIAL))
        else {
            return Ok(());
        };
        let byte = |name| number(event, name).unwrap_or(0) as u8;
        let holder = number(event, ROW).map(|row| Holder {
            row: row as u16,
            vp: byte(VP),
            mark: byte(MARK),
        });
        let core = self.cores.entry(number_of_core).or_default();
        let serial = core.whole(run, serial);
        let (told, by) = *core.words.entry(serial).or_insert((holder, run));
        if told != holder {
            return Err(self.contradiction(number_of_core, (told, by), (holder, run)));
        }
        if let Some(vp) = what {
            self.runs[run].looks += 1;
            let is_set = |name| number(event, name).is_some_and(|n| n != 0);
            let look = Look {
                at: event.at,
                until: event.at,
                serial,
                holder,
                wants: byte(WANTS),
                has: is_set(HAS),
                runs: is_set(RUNS),
                times: 1,
            };
            let looks = core.vps.entry((run, vp)).or_default();
            match looks.last_mut().filter(|last| last.same(&look)) {
                Some(last) => (last.until, last.times) = (look.at, last.times + 1),
                None => looks.push(look),
            }
        }
        Ok(())
    }

    fn add_run(&mut self, file: usize, event: &Event, track: &Track) -> io::Result<()> {
        let run = Run {
            file,
            board: event.text(ARGUMENTS[BOARD_ID]).unwrap_or_default().to_owned(),
            row: number(event, ROW).unwrap_or_default(),
            process: number(event, PROCESS).unwrap_or_default(),
            program: track.name.to_string(),
            looks: 0,
        };
        for other in self.runs.iter().filter(|other| other.file != file) {
            let (a, b) = (self.files[other.file].display(), self.files[file].display());
            if other.board != run.board {
                return Err(refused(format!(
                    "{a} and {b} do not belong together: their processes used different boards"
                )));
            }
            if (other.row, other.process) == (run.row, run.process) {
                let what = format!(
                    "{a} and {b} are traces of the same process ({}): give each process's trace once",
                    run.process
                );
                return Err(refused(what));
            }
        }
        self.index.insert((file, track.run), self.runs.len());
        self.runs.push(run);
        Ok(())
    }

    fn contradiction(
        &self,
        core: u64,
        first: (Option<Holder>, usize),
        second: (Option<Holder>, usize),
    ) -> io::Error {
        let says = |(holder, run): (Option<Holder>, usize)| {
            let file = self.files[self.runs[run].file].display();
            match holder {
                Some(holder) => {
                    format!("{file}: {} has it {}", self.name(holder), Level(holder.mark))
                }
                None => format!("{file}: it is free"),
            }
        };
        let (first, second) = (says(first), says(second));
        refused(format!(
            "the traces contradict each other about one change of core {core} and do not belong together ({first}; {second})"
        ))
    }

    /// Returns the name of a core's holder.
    fn name(&self, Holder { row, vp, .. }: Holder) -> String {
        match self.runs.iter().find(|run| run.row == u64::from(row)) {
            Some(run) => run.name(vp),
            None => format!("VP {vp} of row {row} (in none of these files)"),
        }
    }

    /// Returns the joint report. None if there is one file, whose process requested no core.
    ///
    /// # Errors
    /// Returns `InvalidData` if one of several files belongs to a process that requested no core.
    pub fn report(self) -> io::Result<Option<BoardReport>> {
        let has_looked = |file| self.runs.iter().any(|run| run.file == file && run.looks > 0);
        if let Some(file) = (0..self.files.len()).find(|file| !has_looked(*file)) {
            if self.files.len() == 1 {
                return Ok(None);
            }
            let why = "its process requested no core: it used no board, was alone there, or ran with KUMI_ARBITER=off";
            return Err(refused(format!("{}: {why}", self.files[file].display())));
        }
        let mut report = BoardReport {
            runs: self.runs.iter().filter(|run| run.looks > 0).count(),
            cores: self.cores.len(),
            looks: self.runs.iter().map(|run| run.looks).sum(),
            gave_way: 0,
            kept: None,
            missed: None,
            beyond: 0,
            bound: self.bound,
            unseen: 0,
            apart: self.apart(),
        };
        for (number, core) in &self.cores {
            let (first, last) = (core.words.first_key_value(), core.words.last_key_value());
            let span = first.zip(last).map_or(0, |((first, _), (last, _))| last - first + 1);
            report.unseen += span - core.words.len() as u64;
            self.follow(*number, core, &mut report);
        }
        Ok(Some(report))
    }

    /// Returns the names of the runs whose readings have no order with those of another file.
    fn apart(&self) -> Vec<String> {
        // For each VP: its run, the core, and the first and last serial that it read.
        let spans: Vec<(usize, u64, u64, u64)> = self
            .cores
            .iter()
            .flat_map(|(number, core)| {
                core.vps.iter().map(move |(who, looks)| (number, who, looks))
            })
            .filter_map(|(number, who, looks)| {
                Some((who.0, *number, looks.first()?.serial, looks.last()?.serial))
            })
            .collect();
        let meets = |run: usize| {
            let of_run = spans.iter().filter(move |span| span.0 == run);
            of_run.flat_map(|a| spans.iter().map(move |b| (a, b))).any(|(a, b)| {
                self.runs[a.0].file != self.runs[b.0].file && a.1 == b.1 && a.2 <= b.3 && b.2 <= a.3
            })
        };
        let all =
            (0..self.runs.len()).filter(|run| self.files.len() > 1 && self.runs[*run].looks > 0);
        all.filter(|run| !meets(*run)).map(|run| self.runs[run].title()).collect()
    }

    fn follow(&self, number: u64, core: &Core, report: &mut BoardReport) {
        let wishes: Vec<(Who, Vec<Wish>)> = core
            .vps
            .iter()
            .map(|(who, looks)| (*who, core.wishes((self.runs[who.0].row, who.1), looks)))
            .collect();
        for (&(run, vp), looks) in &core.vps {
            let who = &self.runs[run];
            let is_own = |holder: Holder| (u64::from(holder.row), holder.vp) == (who.row, vp);
            let wish_above = |look: &Look| {
                let surely = |(_, wishes): &(Who, Vec<Wish>)| {
                    let at = wishes.partition_point(|wish| wish.after < look.serial);
                    at.checked_sub(1)
                        .map(|at| wishes[at])
                        .filter(|wish| look.serial <= wish.until && wish.mark > look.wants)
                };
                let others = wishes.iter().filter(|(other, _)| *other != (run, vp));
                others
                    .filter_map(|other| Some((other.0, surely(other)?.mark)))
                    .max_by_key(|(_, mark)| *mark)
            };
            let (mut kept, mut missed) = (Streak::default(), Streak::default());
            for look in looks {
                let other = look.holder.filter(|holder| !is_own(*holder));
                let has_not = look.has && !look.holder.is_some_and(is_own);
                let outranks = other.filter(|holder| look.has || holder.mark >= look.wants);
                let wish = if look.runs { wish_above(look) } else { None };
                let runs_on = look.runs && (has_not || outranks.is_some() || wish.is_some());
                if kept.steps > 0 && !look.runs {
                    report.gave_way += 1;
                }
                kept.are(runs_on, look.at, look.times);
                let mark = look.holder.map_or(0, |holder| holder.mark);
                missed.are(
                    look.waits() && !look.holder.is_some_and(is_own) && mark < look.wants,
                    look.at,
                    look.times,
                );
                let beyond = [&mut kept, &mut missed]
                    .map(|streak| u64::from(streak.goes_beyond(self.bound, streak.steps)));
                report.beyond += beyond.iter().sum::<u64>();
                let held = other.map(|holder| (self.name(holder), holder.mark, false));
                let waited = wish.map(|((run, vp), mark)| (self.runs[run].name(vp), mark, true));
                for (fault, streak, longest, other) in [
                    (
                        Fault::Kept,
                        &kept,
                        &mut report.kept,
                        held.clone().filter(|_| has_not || outranks.is_some()).or(waited),
                    ),
                    (Fault::Missed, &missed, &mut report.missed, held),
                ] {
                    if streak.steps > longest.as_ref().map_or(0, |longest| longest.steps) {
                        *longest = Some(BoardInversion {
                            fault,
                            steps: streak.steps,
                            who: who.name(vp),
                            core: number,
                            mark: look.wants,
                            from: streak.since,
                            to: look.until,
                            other,
                        });
                    }
                }
            }
        }
    }
}

impl Run {
    fn title(&self) -> String {
        format!("{} (process {})", self.program, self.process)
    }

    fn name(&self, vp: u8) -> String {
        format!("VP {vp} of {}", self.title())
    }
}

#[cfg(test)]
mod tests;
