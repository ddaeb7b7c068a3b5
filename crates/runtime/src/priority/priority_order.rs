//! The priority order over all VPs: the protocol.
//!
//! The rule: no VP runs a microprocess while one of a higher level is runnable anywhere in the
//! address space. Nobody touches another's Protect Queue, so a VP *shows* what it runs and the
//! highest level of what waits at it, looks at what the others show, and either hands over what it
//! has itself or asks the owner.
//!
//! ```text
//!   something waits here that outranks what another VP runs:
//!     hand the highest over to the VP that runs the lowest, idle ones first
//!   something waits there that outranks what any VP runs:
//!     ask its owner (a bit, and an event), which does the above at its next step
//! ```
//! Why no change is missed: a VP that changes its published levels stores them, fences, and then
//! looks at the others. Of two VPs that change at the same time at least one sees the other
//! (modelled in loom below). A VP that was asked looks again although none of its own levels has
//! changed.
//!
//! The bound, in scheduling steps ([`rebalance`] is called once a step): what waits at a VP while
//! another one runs something lower leaves that VP at its first step that begins after it was
//! asked, and runs at the first step of the VP it is handed to, unless something higher has come
//! there meanwhile; then it is that VP's to hand over. No step of any other VP is waited for.
//!
//! Where all microprocesses have one level nothing is shown and nobody looks: see
//! `vp/rebalance.rs`.

use crate::loom::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// A level as it is shown: one more than the level, so that 0 is none.
pub(crate) type Rank = u32;

/// Nothing runs, or waits.
pub(crate) const NONE: Rank = 0;
/// The VP has not shown anything yet. It will, and look at the others then.
const UNSEEN: Rank = 255;

/// The mark of a level.
#[inline]
pub(crate) const fn rank(level: u8) -> Rank {
    level as Rank + 1
}

/// What a VP shows. Written by its owner, but for `incoming` and `asked`.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct PublishedLevels {
    /// What runs.
    runs: AtomicU32,
    /// The highest of what waits in its queues.
    waits: AtomicU32,
    /// The highest of what others have put into its injector: counts until the owner takes that in.
    incoming: AtomicU32,
    /// Somebody runs less than what waits here.
    asked: AtomicBool,
}

impl PublishedLevels {
    pub(crate) fn new() -> PublishedLevels {
        PublishedLevels {
            runs: AtomicU32::new(UNSEEN),
            waits: AtomicU32::new(NONE),
            incoming: AtomicU32::new(NONE),
            asked: AtomicBool::new(false),
        }
    }

    /// By the owner. True if that is news.
    fn show(&self, runs: Rank, waits: Rank) -> bool {
        // A store takes the cache line from its readers: only when there is news.
        let news = self.runs.load(Ordering::Relaxed) != runs
            || self.waits.load(Ordering::Relaxed) != waits;
        if news {
            self.runs.store(runs, Ordering::Relaxed);
            self.waits.store(waits, Ordering::Relaxed);
        }
        news
    }

    /// By the owner, before it takes what is in its injector, or when that is empty.
    pub(crate) fn take_incoming(&self) {
        if self.incoming.load(Ordering::Relaxed) != NONE {
            // SeqCst, with the fence in `send`: what the owner does not find in its injector after
            // this is put in by one that finds its mark gone.
            self.incoming.swap(NONE, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            // Others had counted on it, and looked away: what came may be lower by now, or be
            // nothing yet. So the owner looks itself.
            self.asked.store(true, Ordering::Relaxed);
        }
    }

    /// Wants the owner to look at its next step. True if nobody had asked yet: the caller sees to
    /// it that there is a next step.
    #[must_use]
    pub(crate) fn ask(&self) -> bool {
        // Release: what the caller shows is seen by the owner that finds itself asked.
        !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::AcqRel)
    }

    /// By the owner.
    fn take_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::AcqRel)
    }

    /// Of what is runnable at this VP and does not run.
    fn surplus(&self) -> Rank {
        self.waits.load(Ordering::Relaxed).max(self.incoming.load(Ordering::Relaxed))
    }

    /// What runs here, and what will at its next step as far as others have seen to that. None: not
    /// known.
    fn expected(&self) -> Option<(Rank, Rank)> {
        let runs = self.runs.load(Ordering::Relaxed);
        (runs != UNSEEN).then(|| (runs, runs.max(self.incoming.load(Ordering::Relaxed))))
    }
}

/// What all VPs show.
pub(crate) trait PublishedTable {
    /// How many there are.
    fn len(&self) -> usize;
    /// What VP `vp` shows.
    fn published(&self, vp: usize) -> &PublishedLevels;
    /// Whether VP `vp` is known to take no steps: it is handed nothing, and what it runs makes
    /// nobody ask.
    fn is_stuck(&self, vp: usize) -> bool;
}

/// The VP that something of `rank` should go to, since another one than `from` runs something
/// lower: the one that runs the lowest, idle ones first, `first` before its equals. None: nobody
/// runs anything lower. Idle VPs alone are no reason: they get work as the queues' design has it.
pub(crate) fn find_outranked(
    row: &impl PublishedTable,
    from: Option<usize>,
    first: usize,
    rank: Rank,
) -> Option<usize> {
    let n = row.len();
    let mut best: Option<(Rank, usize)> = None;
    let mut someone = false;
    for vp in (0..n).map(|i| (first + i) % n).filter(|vp| Some(*vp) != from) {
        let Some((runs, expected)) = row.published(vp).expected().filter(|_| !row.is_stuck(vp))
        else {
            continue;
        };
        if expected < rank {
            someone |= runs != NONE;
            if best.is_none_or(|(lowest, _)| expected < lowest) {
                best = Some((expected, vp));
            }
        }
    }
    best.filter(|_| someone).map(|(_, vp)| vp)
}

/// Tells `ask` of the VPs at which something waits that outranks what others run: as many as are
/// outranked, the highest first; and all at which something waits that outranks the running one
/// there, since what that leaves over is not known yet.
fn ask_holders(row: &impl PublishedTable, me: usize, mut ask: impl FnMut(usize)) {
    let runs = |vp| {
        let known =
            row.published(vp).expected().filter(|(runs, _)| *runs != NONE && !row.is_stuck(vp));
        known.map(|(_, expected)| expected)
    };
    let Some(lowest) = (0..row.len()).filter_map(runs).min() else { return };
    let others =
        || (0..row.len()).filter(move |vp| *vp != me).map(|vp| (row.published(vp).surplus(), vp));
    let steps_anyway = |vp: usize| {
        row.published(vp).expected().is_some_and(|(runs, _)| row.published(vp).surplus() > runs)
    };
    let (mut wanted, mut last) = (usize::MAX, (UNSEEN, usize::MAX));
    while wanted > 0 {
        let Some(holder) =
            others().filter(|holder| *holder < last).max().filter(|(rank, _)| *rank > lowest)
        else {
            return;
        };
        last = holder;
        if !steps_anyway(holder.1) {
            if wanted == usize::MAX {
                wanted =
                    (0..row.len()).filter_map(runs).filter(|expected| *expected < holder.0).count();
            }
            wanted = wanted.saturating_sub(1);
        }
        ask(holder.1);
    }
}

/// Something of `rank`, the caller's, becomes runnable at VP `to`, or at one that runs less: `put`
/// puts it into that VP's injector and wakes it if it sleeps, `raise` has a VP take a step. `begin`
/// is told first.
pub(crate) fn send(
    row: &impl PublishedTable,
    to: usize,
    rank: Rank,
    begin: impl FnOnce(usize),
    put: impl FnOnce(usize),
    mut raise: impl FnMut(usize),
) {
    let to = find_outranked(row, None, to, rank).unwrap_or(to);
    let published = row.published(to);
    begin(to);
    // Before it is queued: readers count it as soon as they could miss it.
    published.incoming.fetch_max(rank, Ordering::Relaxed);
    put(to);
    fence(Ordering::SeqCst);
    let runs = published.runs.load(Ordering::Relaxed);
    // The owner has to take a step if it runs something lower; if it looked before this was in, and
    // sees it no more by the mark; or if another VP has begun to run something lower meanwhile.
    let unseen = published.incoming.load(Ordering::Relaxed) < rank;
    if runs != NONE
        && (runs < rank || unseen || find_outranked(row, Some(to), to, rank).is_some())
        && published.ask()
    {
        raise(to);
    }
}

/// What a VP can do about its own queue.
pub(crate) trait OwnQueue {
    /// Whether there is something in the injector that was not yet taken in.
    fn is_sent(&mut self) -> bool;
    /// The highest of what waits here.
    fn waits(&mut self) -> Rank;
    /// Hands the next one, if it is at least that high, over to VP `to`. False: there is none, or
    /// it is not within reach.
    fn hand(&mut self, to: usize, rank: Rank) -> bool;
    /// What waits here cannot be handed over now: it runs here at the next step, or is within reach
    /// of another VP, which has to take one.
    fn pass_on(&mut self);
    /// VP `vp` was asked by us: it has to take a step.
    fn raise(&mut self, vp: usize);
}

/// One scheduling step of VP `me`, which runs what has the mark `runs`: shows it, hands over, asks.
/// Returns what then waits here, and whether the VP had been asked.
pub(crate) fn rebalance(
    row: &impl PublishedTable,
    me: usize,
    runs: Rank,
    owner: &mut impl OwnQueue,
) -> (Rank, bool) {
    let published = row.published(me);
    if !owner.is_sent() {
        published.take_incoming();
    }
    let asked = published.take_asked();
    let mut look = asked;
    let waits = loop {
        let waits = owner.waits();
        look |= published.show(runs, waits);
        if !look {
            return (waits, asked);
        }
        // Shown first, then looked: see the head of this file.
        fence(Ordering::SeqCst);
        if waits > runs && runs != NONE {
            // What outranks the running one here is no surplus.
            owner.pass_on();
        } else if waits != NONE
            && let Some(to) = find_outranked(row, Some(me), me + 1, waits)
        {
            if owner.hand(to, waits) || owner.waits() != waits {
                continue;
            }
            owner.pass_on();
        }
        break waits;
    };
    ask_holders(row, me, |vp| {
        if row.published(vp).ask() {
            owner.raise(vp);
        }
    });
    (waits, asked)
}

#[cfg(all(test, loom))]
#[path = "priority_order/tests/loom.rs"]
mod tests;
#[cfg(all(test, not(loom)))]
mod tests;
