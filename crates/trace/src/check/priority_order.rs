//! Whether priorities are exact: counts for how many steps a VP leaves an inversion as it is.
//!
//! *Exact*: no VP runs a microprocess while one of a higher level is runnable anywhere in the
//! address space, but for a few scheduling steps. The records of a step say what the VP runs and
//! the highest level of what waits there
//! ([`Kind::Settled`](crate::capture::record::Kind::Settled)); those of a microprocess on its way
//! to another VP say when it counts as that one's (`Sent`, `Put`). Each VP has only its own means
//! to end an inversion, so counted are the steps in a row of the VP that had to:
//!
//! - *kept*: what waits at a VP outranks what another one runs (or is about to run: what was sent
//!   to it counts), and that VP keeps it. It is to blame from when it was asked for it until
//!   nothing is outranked any more. Where it was not asked, all are: each VP shows what it has and
//!   looks at the others in a step of its own, so that the VP that holds the highest of all that
//!   waits has been asked once *every* VP has taken a step. Then the steps of the one with fewest
//!   count.
//! - *missed*: a VP runs something lower than what waits at that VP itself.
//!
//! What stands in a Waiver Queue of the ring is within reach of the next VP only, and is not
//! counted against its owner. Nor is, in the design `locked`, what stands in a Waiver Queue whose
//! lock another VP holds: that one is about to take it, and may have no core for it just now.
//!
//! Why no steps of other VPs, and no time: kernel threads share cores. While that of a VP has none
//! for some milliseconds the other VPs take hundreds of steps, and no scheduler can do anything
//! about what runs there: that VP is in the middle of what it does. So a VP that has begun a step
//! and not ended it (`Settles` without its `Settled`) is not counted against anybody, neither as
//! one that runs something low nor as one whose answer is known.
//!
//! The same holds for a VP that the watchdog has written off (`Overridden`), until its next step:
//! the others hand nothing to it, whatever it seems to run.

use std::collections::HashMap;
use std::fmt;

use crate::format::names::{
    ARGUMENTS, ASKED, GIVEN, ID, LEVEL, NAMES, Name, OVERRIDDEN, PUT, SENT, SETTLED, SETTLES,
    WAITS, WHO,
};
use crate::read::{Event, Of, Track};

/// Steps in a row of one VP that an inversion may last. Two or three are what the protocol has: one
/// that is under way and has looked already, one in which a running one sets its own priority, and
/// one more. The rest is for the records, which are not written at the moment at which things
/// happen. (Exactly none is what `priority/priority_order/tests.rs` in crates/runtime asserts,
/// where nothing is under way.)
pub const BOUND: u64 = 6;

/// What was sent to a VP and is not seen to run there or to be passed on counts as not taken in yet
/// for so many of its steps after it was put in.
const TAKES_IN: u32 = 2;

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A VP kept what outranked another's.
    Kept,
    /// A VP ran something lower than what it had.
    Missed,
}

/// Something waited at a VP while something lower ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inversion {
    /// Which kind.
    pub fault: Fault,
    /// Steps of the VP that had to end it.
    pub steps: u64,
    /// That VP.
    pub vp: String,
    /// Level of what waited there.
    pub level: u8,
    /// Its first and its last step, in nanoseconds since the begin of the run.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// The microprocess that ran at the last one, on which VP, and its level.
    pub behind: (String, String, u8),
}

impl fmt::Display for Inversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        let did = if self.fault == Fault::Kept { "kept" } else { "did not run" };
        let (name, on, level) = &self.behind;
        write!(
            f,
            "{} step(s) of {}: it {did} what waited there at level {}, from {:.3} us to {:.3} us, while {name} ran on {on} at level {level}",
            self.steps,
            self.vp,
            self.level,
            us(self.from),
            us(self.to)
        )
    }
}

/// On its way to a VP that runs nothing as high yet.
#[derive(Debug)]
struct Sent {
    id: u64,
    mark: u64,
    is_in: bool,
    /// Steps of the VP since it is in.
    steps: u32,
}

/// Steps in a row at which something was as it should not be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streak {
    pub(crate) steps: u64,
    pub(crate) since: u64,
    /// Counted as one beyond the bound.
    told: bool,
}

impl Streak {
    fn is(&mut self, so: bool, at: u64) {
        self.are(so, at, 1);
    }

    /// So many steps, the first of them at that time.
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

    /// Whether it has just gone beyond `bound`.
    pub(crate) fn goes_beyond(&mut self, bound: u64, steps: u64) -> bool {
        steps > bound && !std::mem::replace(&mut self.told, true)
    }
}

/// What is known of a VP. Levels are marks: one more, 0 is none.
#[derive(Debug)]
struct Vp {
    name: String,
    runs: u64,
    waits: u64,
    who: String,
    /// It is in the middle of a step, or has taken none yet.
    steps: bool,
    sent: Vec<Sent>,
    /// Something waits that outranks what another VP runs, since the VP was asked for it.
    kept: Streak,
    /// Something waits that outranks what runs here.
    missed: Streak,
    /// What waits here outranks what another VP runs and is the highest of all: the VP that has to
    /// ask does so in one of these.
    highest: Streak,
    /// Steps of each VP while that is so.
    of_all: Vec<u64>,
}

impl Vp {
    fn highest_sent(&self) -> u64 {
        self.sent.iter().map(|sent| sent.mark).max().unwrap_or(0)
    }

    /// What runs here, and what will as far as it is on its way.
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
    vps: Vec<Vp>,
    /// By track.
    index: HashMap<u64, usize>,
    pub(crate) steps: u64,
    /// Times that something was sent to a VP that ran something lower.
    pub(crate) sent: u64,
    /// Steps after which something waited that outranked what another VP ran.
    pub(crate) inverted: u64,
    /// Inversions beyond the bound.
    pub(crate) beyond: u64,
    pub(crate) kept: Option<Inversion>,
    pub(crate) missed: Option<Inversion>,
}

impl Steps {
    /// Of the run with the track `run`; all its VPs are among `tracks`.
    pub(crate) fn new(tracks: &HashMap<u64, Track>, run: u64, bound: u64) -> Steps {
        let of_run = tracks.iter().filter(|(_, track)| track.of == Of::Vp && track.run == run);
        let mut uuids: Vec<u64> = of_run.map(|(uuid, _)| *uuid).collect();
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
            of_all: vec![0; uuids.len()],
        };
        let vps = uuids.iter().map(vp).collect();
        let index = uuids.iter().enumerate().map(|(i, uuid)| (*uuid, i)).collect();
        Steps {
            bound,
            vps,
            index,
            steps: 0,
            sent: 0,
            inverted: 0,
            beyond: 0,
            kept: None,
            missed: None,
        }
    }

    pub(crate) fn vps(&self) -> usize {
        self.vps.len()
    }

    /// The next event of the run that is no slice.
    pub(crate) fn take(&mut self, event: &Event) {
        let Some(&vp) = self.index.get(&event.track) else { return };
        let is = |name: Name| &*event.name == NAMES[name];
        let number = |name: Name| event.number(ARGUMENTS[name]);
        let mark = |name: Name| number(name).map_or(0, |level| level.saturating_add(1));
        // One that is overridden takes its next step when it has come back.
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

    /// VP `vp` has taken a step.
    fn settled(
        &mut self,
        vp: usize,
        at: u64,
        who: &str,
        (runs, waits): (u64, u64),
        (given, asked): (bool, bool),
    ) {
        self.steps += 1;
        self.vps.iter_mut().for_each(|other| other.of_all[vp] += 1);
        let others =
            || self.vps.iter().enumerate().filter(|(i, _)| *i != vp).map(|(_, other)| other);
        let settled = others().filter(|other| !other.steps && other.runs != 0);
        let lowest = settled.min_by_key(|other| other.standing());
        let outranked = lowest.filter(|other| !given && other.standing() < waits);
        let outranked =
            outranked.map(|other| (other.who.clone(), other.name.clone(), level(other.runs)));
        // Of equals the last one is asked first.
        let is_highest = (0..self.vps.len()).filter(|other| *other != vp).all(|i| {
            let other = &self.vps[i];
            !other.steps && (other.surplus(), i) < (waits, vp)
        });
        let me = &mut self.vps[vp];
        (me.steps, me.runs, me.waits) = (false, runs, waits);
        me.who.clear();
        me.who.push_str(who);
        // One that runs nothing is not seen to keep anything: it takes it as the next thing that it
        // does.
        let outranks = runs != 0 && outranked.is_some();
        self.inverted += u64::from(outranks);
        me.kept.is(outranks && (asked || me.kept.steps > 0), at);
        me.highest.is(outranks && is_highest, at);
        if me.highest.steps <= 1 {
            // What others did before is no answer.
            me.of_all.fill(0);
            me.of_all[vp] = me.highest.steps;
        }
        me.missed.is(!given && runs != 0 && waits > runs, at);
        if runs != 0 {
            // What is in was taken in by the second step after that at the latest: then it runs, or
            // waits, or an idle VP has it.
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
        longer(&mut self.kept, found(Fault::Kept, kept.steps, kept.since, behind.clone()));
        longer(&mut self.kept, found(Fault::Kept, by_all, highest.since, behind));
        longer(
            &mut self.missed,
            found(
                Fault::Missed,
                missed.steps,
                missed.since,
                (who.to_owned(), name.clone(), level(runs)),
            ),
        );
    }
}

/// The level of a mark.
fn level(mark: u64) -> u8 {
    mark.saturating_sub(1).try_into().unwrap_or(u8::MAX)
}

/// `found` becomes the longest if it is.
pub(crate) fn longer(longest: &mut Option<Inversion>, found: Option<Inversion>) {
    if found.as_ref().map(|found| found.steps) > longest.as_ref().map(|longest| longest.steps) {
        *longest = found;
    }
}
