//! Checks whether priorities are exact, by counting the steps for which a VP leaves an inversion in
//! place.
//!
//! *Exact* means that no VP runs a microprocess while one of a higher level is runnable anywhere in
//! the address space, except for a few scheduling steps. The record of a step contains the level
//! that the VP runs and the highest level that waits there
//! ([`Kind::Settled`](crate::capture::record::Kind::Settled)). The records `Sent` and `Put` show
//! from when a microprocess that moves to another VP counts for that VP.
//!
//! A VP can only act in its own steps. An inversion is therefore measured in consecutive steps of
//! the VP that has to end it:
//!
//! - *kept*: a microprocess waits at a VP and outranks the one that another VP runs, or is about to
//!   run because it was sent there; and the first VP keeps it. If the VP was asked for it, its
//!   steps count from then until nothing is outranked. If no VP was asked, all VPs share the
//!   responsibility. Each VP publishes its waiting level and reads the others' in a step of its
//!   own, so once *every* VP has taken a step, the VP with the highest waiting level has been
//!   asked. Then the steps of the VP with the fewest steps count.
//! - *missed*: a VP runs a lower level than one that waits at the same VP.
//!
//! Items in a Waiver Queue of the ring can be taken only by the next VP, and do not count against
//! their owner. In the design `locked`, the same holds for items in a Waiver Queue whose lock
//! another VP holds: that VP is about to take them, and may have no core at the moment.
//!
//! Neither time nor the steps of other VPs are used, because kernel threads share cores. While the
//! kernel thread of a VP has no core for some milliseconds, the other VPs take hundreds of steps.
//! No scheduler can change what that VP runs, which is in the middle of an operation. A VP that has
//! started a step and not finished it (`Settles` without its `Settled`) is therefore not counted:
//! neither as one that runs a low level, nor as one that keeps a high one.
//!
//! The same holds for a VP that the watchdog has overridden (`Overridden`), until its next step:
//! the other VPs send nothing to it.

use std::collections::HashMap;
use std::fmt;
use std::io;

use super::finding::{Finding, FindingKind, Findings};
use crate::format::names::{
    ARGUMENTS, ASKED, GIVEN, ID, LEVEL, NAMES, Name, OVERRIDDEN, PUT, SENT, SETTLED, SETTLES,
    WAITS, WHO,
};
use crate::read::{Event, Of, Track};
use crate::spool::MOST_VPS;

/// Number of consecutive steps of one VP that an inversion may last. The protocol needs two or
/// three: one that is in progress and has already read the levels, one in which a running
/// microprocess sets its own priority, and one more. The rest allows for records, which are not
/// written at the moment of the event. (`priority/priority_order/tests.rs` in crates/runtime, where
/// no step is in progress, asserts a bound of zero.)
pub const BOUND: u64 = 6;

/// Number of steps after which a microprocess in a VP's injector no longer counts as not taken in,
/// if it has neither run there nor been passed on.
const TAKES_IN: u32 = 2;

/// The kind of inversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A VP kept an item that outranked another VP's.
    Kept,
    /// A VP ran a lower level than one that waited there.
    Missed,
}

/// A microprocess waited at a VP while one of a lower level ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inversion {
    /// The kind of inversion.
    pub fault: Fault,
    /// Number of steps of the VP that had to end it.
    pub steps: u64,
    /// Name of that VP.
    pub vp: String,
    /// Level of the microprocess that waited there.
    pub level: u8,
    /// Start of its first step, in nanoseconds since the start of the run.
    pub from: u64,
    /// End of its last step; see `from`.
    pub to: u64,
    /// The microprocess that ran at the last step, its VP and its level.
    pub behind: (String, String, u8),
}

impl fmt::Display for Inversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        let did = if self.fault == Fault::Kept { "kept" } else { "did not run" };
        let (name, on, level) = &self.behind;
        write!(
            f,
            "{} step(s) of {}: it {did} a waiting microprocess of level {}, from {:.3} us to {:.3} us, while {name} ran on {on} at level {level}",
            self.steps,
            self.vp,
            self.level,
            us(self.from),
            us(self.to)
        )
    }
}

/// A microprocess on its way to a VP that does not run that level yet.
#[derive(Debug)]
struct Sent {
    id: u64,
    mark: u64,
    is_in: bool,
    /// Number of steps of the VP since the microprocess is in its injector.
    steps: u32,
}

/// Consecutive steps with an inversion.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streak {
    pub(crate) steps: u64,
    pub(crate) since: u64,
    /// Whether it was counted as one beyond the bound.
    told: bool,
}

impl Streak {
    fn is(&mut self, so: bool, at: u64) {
        self.are(so, at, 1);
    }

    /// Counts `steps` steps, the first of them at time `at`, if `so`; otherwise resets the streak.
    pub(crate) fn are(&mut self, so: bool, at: u64, steps: u64) {
        if !so {
            *self = Streak::default();
        } else {
            if self.steps == 0 {
                self.since = at;
            }
            self.steps += steps;
        }
    }

    /// Returns whether the streak has just exceeded `bound`.
    pub(crate) fn goes_beyond(&mut self, bound: u64, steps: u64) -> bool {
        steps > bound && !std::mem::replace(&mut self.told, true)
    }
}

/// The known state of a VP. Levels are stored as marks: one more than the level, or 0 for none.
#[derive(Debug)]
struct Vp {
    name: String,
    runs: u64,
    waits: u64,
    who: String,
    /// The VP is in the middle of a step, or has taken none yet.
    steps: bool,
    sent: Vec<Sent>,
    /// A waiting item outranks another VP's, and this VP was asked for it.
    kept: Streak,
    /// A waiting item outranks the one that runs on this VP.
    missed: Streak,
    /// A waiting item outranks another VP's and is the highest of all. The VP that has to ask does
    /// so during this streak.
    highest: Streak,
    /// Number of steps of each VP during that streak; empty without one, as most VPs have none.
    of_all: Vec<u64>,
    /// Positions of the findings for the streaks above, while they last.
    found: [Option<usize>; 3],
}

impl Vp {
    fn highest_sent(&self) -> u64 {
        self.sent.iter().map(|sent| sent.mark).max().unwrap_or(0)
    }

    /// Returns the mark of the item that runs on this VP, or of a higher one that is on its way.
    fn standing(&self) -> u64 {
        self.runs.max(self.highest_sent())
    }

    fn surplus(&self) -> u64 {
        self.waits.max(self.highest_sent())
    }
}

/// The steps of one run.
#[derive(Debug)]
pub(crate) struct Steps {
    bound: u64,
    run: u64,
    /// Tracks of the VPs.
    tracks: Vec<u64>,
    pub(crate) findings: Findings,
    vps: Vec<Vp>,
    /// Indexed by track.
    index: HashMap<u64, usize>,
    pub(crate) steps: u64,
    /// Number of times that a microprocess was sent to a VP that ran a lower level.
    pub(crate) sent: u64,
    /// Number of steps after which a waiting microprocess outranked the one on another VP.
    pub(crate) inverted: u64,
    /// Number of inversions beyond the bound.
    pub(crate) beyond: u64,
    pub(crate) kept: Option<Inversion>,
    pub(crate) missed: Option<Inversion>,
}

impl Steps {
    /// Creates the state of the run with track `run`; all its VPs are among `tracks`.
    ///
    /// # Errors
    /// `InvalidData` if they are more than a runtime can have. Each step is compared with all VPs.
    pub(crate) fn new(tracks: &HashMap<u64, Track>, run: u64, bound: u64) -> io::Result<Steps> {
        let of_run = tracks.iter().filter(|(_, track)| track.of == Of::Vp && track.run == run);
        let mut uuids: Vec<u64> = of_run.map(|(uuid, _)| *uuid).collect();
        if uuids.len() > MOST_VPS as usize {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "a run with {} virtual processors, and {MOST_VPS} are possible",
                    uuids.len()
                ),
            ));
        }
        uuids.sort_unstable();
        let vp = |uuid: &u64| Vp {
            name: tracks[uuid].name.to_string(),
            runs: 0,
            waits: 0,
            who: String::new(),
            steps: true,
            sent: Vec::new(),
            kept: Streak::default(),
            missed: Streak::default(),
            highest: Streak::default(),
            of_all: Vec::new(),
            found: [None; 3],
        };
        let vps = uuids.iter().map(vp).collect();
        let index = uuids.iter().enumerate().map(|(i, uuid)| (*uuid, i)).collect();
        Ok(Steps {
            bound,
            run,
            tracks: uuids,
            findings: Findings::default(),
            vps,
            index,
            steps: 0,
            sent: 0,
            inverted: 0,
            beyond: 0,
            kept: None,
            missed: None,
        })
    }

    pub(crate) fn vps(&self) -> usize {
        self.vps.len()
    }

    /// Processes the next event of the run that is not a slice.
    pub(crate) fn take(&mut self, event: &Event) {
        let Some(&vp) = self.index.get(&event.track) else { return };
        let is = |name: Name| &*event.name == NAMES[name];
        let number = |name: Name| event.number(ARGUMENTS[name]);
        let mark = |name: Name| number(name).map_or(0, |level| level.saturating_add(1));
        // An overridden VP takes its next step when it has returned.
        if is(SETTLES) || is(OVERRIDDEN) {
            self.vps[vp].steps = true;
        } else if is(SETTLED) {
            let who = event.text(ARGUMENTS[WHO]).unwrap_or_default();
            let flag = |name| number(name).is_some_and(|n| n != 0);
            self.settled(vp, event.at, who, (mark(LEVEL), mark(WAITS)), (flag(GIVEN), flag(ASKED)));
        } else if is(SENT) {
            let id = number(ID).unwrap_or_default();
            self.vps.iter_mut().for_each(|vp| vp.sent.retain(|sent| sent.id != id));
            let (mark, to) = (mark(LEVEL), &mut self.vps[vp]);
            self.sent += u64::from(!to.steps && to.runs != 0 && to.runs < mark);
            to.sent.push(Sent { id, mark, is_in: false, steps: 0 });
        } else if is(PUT)
            && let Some(sent) =
                self.vps[vp].sent.iter_mut().find(|sent| Some(sent.id) == number(ID))
        {
            sent.is_in = true;
        }
    }

    /// Processes a finished step of VP `vp`.
    fn settled(
        &mut self,
        vp: usize,
        at: u64,
        who: &str,
        (runs, waits): (u64, u64),
        (given, asked): (bool, bool),
    ) {
        self.steps += 1;
        for other in &mut self.vps {
            if let Some(steps) = other.of_all.get_mut(vp) {
                *steps += 1;
            }
        }
        let others =
            || self.vps.iter().enumerate().filter(|(i, _)| *i != vp).map(|(_, other)| other);
        let settled = others().filter(|other| !other.steps && other.runs != 0);
        let lowest = settled.min_by_key(|other| other.standing());
        let outranked = lowest.filter(|other| !given && other.standing() < waits);
        let outranked =
            outranked.map(|other| (other.who.clone(), other.name.clone(), level(other.runs)));
        // Among equal levels, the last VP is asked first.
        let is_highest = (0..self.vps.len()).filter(|other| *other != vp).all(|i| {
            let other = &self.vps[i];
            !other.steps && (other.surplus(), i) < (waits, vp)
        });
        let all = self.vps.len();
        let me = &mut self.vps[vp];
        (me.steps, me.runs, me.waits) = (false, runs, waits);
        me.who.clear();
        me.who.push_str(who);
        // A VP that runs nothing does not keep an item, because it runs that item next.
        let outranks = runs != 0 && outranked.is_some();
        self.inverted += u64::from(outranks);
        me.kept.is(outranks && (asked || me.kept.steps > 0), at);
        me.highest.is(outranks && is_highest, at);
        if me.highest.steps <= 1 {
            // Steps that other VPs took before this streak do not count.
            me.of_all.clear();
            if me.highest.steps == 1 {
                me.of_all.resize(all, 0);
                me.of_all[vp] = 1;
            }
        }
        me.missed.is(!given && runs != 0 && waits > runs, at);
        if runs != 0 {
            // By its second step, the VP has taken the microprocess from its injector: it runs,
            // waits, or was taken by an idle VP.
            me.sent.iter_mut().for_each(|sent| sent.steps += u32::from(sent.is_in));
            me.sent.retain(|sent| !sent.is_in || sent.mark > runs && sent.steps < TAKES_IN);
        }
        let by_all = me.of_all.iter().min().copied().unwrap_or(0);
        let beyond = [
            me.kept.goes_beyond(self.bound, me.kept.steps),
            me.highest.goes_beyond(self.bound, by_all),
            me.missed.goes_beyond(self.bound, me.missed.steps),
        ];
        self.beyond += beyond.into_iter().map(u64::from).sum::<u64>();
        let (name, kept, highest, missed) = (me.name.clone(), me.kept, me.highest, me.missed);
        let found = |fault, steps, since, behind| {
            (steps > 0).then(|| Inversion {
                fault,
                steps,
                vp: name.clone(),
                level: level(waits),
                from: since,
                to: at,
                behind,
            })
        };
        let behind = outranked.unwrap_or_default();
        let missed_behind = (who.to_owned(), name.clone(), level(runs));
        let three = [
            found(Fault::Kept, kept.steps, kept.since, behind.clone()),
            found(Fault::Kept, by_all, highest.since, behind),
            found(Fault::Missed, missed.steps, missed.since, missed_behind),
        ];
        for (i, inversion) in three.into_iter().enumerate() {
            self.list(vp, i, inversion.as_ref(), beyond[i]);
            let longest = if i < 2 { &mut self.kept } else { &mut self.missed };
            longer(longest, inversion);
        }
    }

    /// Lists an inversion that has just exceeded the bound, and extends one that did so before.
    fn list(&mut self, vp: usize, i: usize, inversion: Option<&Inversion>, is_new: bool) {
        let Some(it) = inversion.filter(|it| it.steps > self.bound) else {
            self.vps[vp].found[i] = None;
            return;
        };
        if is_new {
            let finding = self.finding(it, FindingKind::Inversion, self.tracks[vp]);
            self.vps[vp].found[i] = self.findings.add(finding);
        } else if let Some(at) = self.vps[vp].found[i] {
            let known = self.findings.get_mut(at);
            known.to = it.to;
            known.text = it.to_string();
        }
    }

    fn finding(&self, it: &Inversion, kind: FindingKind, track: u64) -> Finding {
        let text = it.to_string();
        Finding { run: self.run, track, from: it.from, to: it.to, kind, text }
    }

    /// Returns the findings of the run, the longest inversions within the bound among them.
    pub(crate) fn all_findings(&mut self) -> Vec<Finding> {
        let within = [&self.kept, &self.missed].into_iter().flatten();
        let within = within.filter(|it| it.steps <= self.bound).map(|it| {
            let vp = self.vps.iter().position(|vp| vp.name == it.vp);
            let track = vp.map_or(self.run, |vp| self.tracks[vp]);
            self.finding(it, FindingKind::ShortInversion, track)
        });
        let within: Vec<Finding> = within.collect();
        std::mem::take(&mut self.findings).sorted(within)
    }
}

/// Returns the level of a mark.
fn level(mark: u64) -> u8 {
    mark.saturating_sub(1).try_into().unwrap_or(u8::MAX)
}

/// Replaces `longest` by `found` if that is longer.
pub(crate) fn longer(longest: &mut Option<Inversion>, found: Option<Inversion>) {
    if found.as_ref().map(|found| found.steps) > longest.as_ref().map(|longest| longest.steps) {
        *longest = found;
    }
}
