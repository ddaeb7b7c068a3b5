//! Priority order over all VPs: the protocol.
//!
//! The rule: no VP runs a microprocess while a microprocess of a higher level is runnable anywhere
//! in the address space. No VP may access another VP's Protect Queue. So each VP *publishes* the
//! level that it runs and the highest level that waits on it. It then examines the published levels
//! of the others, and either hands over a microprocess of its own or asks another VP to do so.
//!
//! - A microprocess that waits on this VP outranks the running one of another VP: hand the highest
//!   waiting one over to the VP with the lowest running level, idle VPs first.
//! - A microprocess that waits on another VP outranks the running one of any VP: ask the former VP
//!   (by a bit and an event) to do the above at its next step.
//!
//! No change is missed, because a VP that changes its published levels stores them, executes a
//! fence, and then examines the others' levels. Of two VPs that change at the same time, at least
//! one observes the other's change (modelled in loom below). A VP that was asked examines the
//! others even if its own levels have not changed.
//!
//! The bound, in scheduling steps ([`rebalance`] is called once per step): consider a microprocess
//! that waits on a VP while another VP runs a lower level. It leaves the VP at the VP's first step
//! that begins after the request. It runs at the first step of the receiving VP, unless a higher
//! level has arrived there meanwhile. In that case the receiving VP hands it over again. No step of
//! any other VP is required.
//!
//! While all microprocesses have the same level, no VP publishes or examines levels: see
//! `vp/rebalance.rs`.

use crate::loom::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// A level as it is published: the level plus one, so that 0 means none.
pub(crate) type Rank = u32;

/// Rank for "nothing runs" and "nothing waits".
pub(crate) const NONE: Rank = 0;
/// The VP has not published anything yet. When it does, it examines the others' levels.
const UNSEEN: Rank = 255;

/// Returns the rank of a level.
#[inline]
pub(crate) const fn rank(level: u8) -> Rank {
    level as Rank + 1
}

/// The published levels of a VP. Its owner writes them, except for `incoming` and `asked`.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct PublishedLevels {
    /// Rank of the running microprocess.
    runs: AtomicU32,
    /// Highest rank in its queues.
    waits: AtomicU32,
    /// Highest rank that other threads have put into its injector, until the owner collects them.
    incoming: AtomicU32,
    /// Whether the owner is asked to rebalance: another VP runs a lower level than one that waits
    /// here.
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

    /// Publishes the levels. Owner only. Returns whether they have changed.
    fn show(&self, runs: Rank, waits: Rank) -> bool {
        // A store invalidates the cache line of the readers, so it is done only for a change.
        let news = self.runs.load(Ordering::Relaxed) != runs
            || self.waits.load(Ordering::Relaxed) != waits;
        if news {
            self.runs.store(runs, Ordering::Relaxed);
            self.waits.store(waits, Ordering::Relaxed);
        }
        news
    }

    /// Clears `incoming`. Called by the owner before it collects its injector, or when that is
    /// empty.
    pub(crate) fn take_incoming(&self) {
        if self.incoming.load(Ordering::Relaxed) != NONE {
            // SeqCst, pairs with the fence in `send`: a sender whose item the owner does not find
            // in the injector after this observes that its rank was cleared.
            self.incoming.swap(NONE, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            // Other VPs relied on the rank and did not act, but the collected items may be of a
            // lower rank, or not be there yet. So the owner must examine the levels itself.
            self.asked.store(true, Ordering::Relaxed);
        }
    }

    /// Asks the owner to rebalance at its next step. Returns true for the first request; the caller
    /// must then make the VP take a step.
    #[must_use]
    pub(crate) fn ask(&self) -> bool {
        // Release: the owner that observes the request also observes the caller's published levels.
        !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::AcqRel)
    }

    /// Clears and returns the request. Owner only.
    fn take_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::AcqRel)
    }

    /// Returns the highest rank that is runnable on this VP without running.
    fn surplus(&self) -> Rank {
        self.waits.load(Ordering::Relaxed).max(self.incoming.load(Ordering::Relaxed))
    }

    /// Returns the running rank, and the rank that will run after the next step as far as other
    /// threads can tell. `None` if the VP has not published anything.
    fn expected(&self) -> Option<(Rank, Rank)> {
        let runs = self.runs.load(Ordering::Relaxed);
        (runs != UNSEEN).then(|| (runs, runs.max(self.incoming.load(Ordering::Relaxed))))
    }
}

/// The published levels of all VPs.
pub(crate) trait PublishedTable {
    /// Returns the number of VPs.
    fn len(&self) -> usize;
    /// Returns the published levels of VP `vp`.
    fn published(&self, vp: usize) -> &PublishedLevels;
    /// Whether VP `vp` is known to take no steps, or runs no microprocesses for the time being. It
    /// is handed nothing, and its running level causes no requests.
    fn is_closed(&self, vp: usize) -> bool;
}

/// Returns the VP to which a microprocess of `rank` should go because a VP other than `from` runs a
/// lower rank. That is the VP with the lowest rank, idle VPs first, and `first` before its equals.
/// Returns `None` if no VP runs a lower rank. Idle VPs alone do not count: the queue design
/// distributes work to them.
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
        let Some((runs, expected)) = row.published(vp).expected().filter(|_| !row.is_closed(vp))
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

/// Calls `ask` for the VPs with a waiting rank above the running rank of another VP. It asks as
/// many VPs as are outranked, the highest waiting rank first. It also asks every VP whose waiting
/// rank is above its own running rank, since the surplus that such a VP keeps is not known yet.
fn ask_holders(row: &impl PublishedTable, me: usize, mut ask: impl FnMut(usize)) {
    let runs = |vp| {
        let known =
            row.published(vp).expected().filter(|(runs, _)| *runs != NONE && !row.is_closed(vp));
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

/// Makes a microprocess of `rank`, which the caller holds, runnable on VP `to` or on a VP that runs
/// a lower rank. `begin` is called first. `put` puts it into that VP's injector and wakes the VP if
/// it sleeps. `raise` makes a VP take a step.
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
    // Published before it is queued: readers count the rank from the moment at which they could
    // miss the item.
    published.incoming.fetch_max(rank, Ordering::Relaxed);
    put(to);
    fence(Ordering::SeqCst);
    let runs = published.runs.load(Ordering::Relaxed);
    // The owner must take a step in three cases. It runs a lower rank. Or it collected its injector
    // before the item was in, which the cleared rank shows. Or another VP has begun to run a lower
    // rank meanwhile.
    let unseen = published.incoming.load(Ordering::Relaxed) < rank;
    if runs != NONE
        && (runs < rank || unseen || find_outranked(row, Some(to), to, rank).is_some())
        && published.ask()
    {
        raise(to);
    }
}

/// Operations of a VP on its own queue.
pub(crate) trait OwnQueue {
    /// Whether the injector holds items that were not collected yet.
    fn is_sent(&mut self) -> bool;
    /// Returns the highest waiting rank.
    fn waits(&mut self) -> Rank;
    /// Hands the next microprocess over to VP `to` if its rank is at least `rank`. Returns false if
    /// there is none, or if it is out of the owner's reach.
    fn hand(&mut self, to: usize, rank: Rank) -> bool;
    /// Handles a waiting microprocess that cannot be handed over now. Either it runs here at the
    /// next step, or another VP can take it and must take a step.
    fn pass_on(&mut self);
    /// Makes VP `vp` take a step, after this VP has asked it to.
    fn raise(&mut self, vp: usize);
}

/// Performs one scheduling step of VP `me`, which runs rank `runs`: publishes the levels, hands
/// over, asks. Returns the highest rank that then waits here, and whether the VP had been asked.
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
        // Published before the others are examined: see the head of this file.
        fence(Ordering::SeqCst);
        if waits > runs && runs != NONE {
            // A microprocess that outranks the running one here is not surplus.
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
