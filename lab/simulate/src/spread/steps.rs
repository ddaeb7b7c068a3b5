//! Steps of the designs, modelled on `crates/queue`: `ring.rs`, `locked.rs`, `steal.rs`,
//! `design/peers.rs`. All items have the same level, and none was woken by another.

use super::Design;
use super::world::{Event, Mode, World};
use crate::engine::Time;

/// Capacity of a Waiver Queue.
const PLACES: usize = 256;
/// Slack of `Capacity::FairShare`.
const SLACK: usize = 1;
/// Number of items that the owner takes back at once (`locked`).
const BATCH: usize = 16;
/// Maximum number of items taken from a deque at once.
const MAX_BATCH: usize = kumihimo_queue::deque::BATCH;
/// Number of pointers in a cache line.
const A_LINE: usize = 8;
/// Time limit of a wait for a lock: 256 rounds of a spin loop.
const PATIENCE: Time = 6_500;

/// Processors that can take an item that has just become visible.
enum Taker {
    Nobody,
    Next,
    Any,
}

impl World<'_> {
    fn next(&self, at: usize) -> usize {
        (at + 1) % self.all.len()
    }

    fn previous(&self, at: usize) -> usize {
        (at + self.all.len() - 1) % self.all.len()
    }

    /// The other processor at position `place`, in an order rotated by `turn`.
    fn other(&self, at: usize, turn: usize, place: usize) -> usize {
        let others = self.all.len() - 1;
        (at + 1 + (turn + place) % others) % self.all.len()
    }

    /// Time to check all other processors.
    fn look_at_all(&self) -> Time {
        self.costs.look_ns * (self.all.len() as Time - 1)
    }

    /// `Peers::share`.
    fn share(&self, at: usize, load: usize) -> usize {
        let n = self.all.len();
        let shown = |other: usize| if other == at { load } else { self.all[other].shown };
        let total: usize = (0..n).map(|other| shown(other) + self.all[other].waiver).sum();
        (total / n + usize::from(at < total % n)).max(1)
    }

    /// `Limit::renew`: the surplus of the queued items.
    fn renew(&mut self, at: usize, running: usize) -> usize {
        let queued = self.all[at].protect;
        if self.all.len() == 1 {
            return 0;
        }
        let keep = self.share(at, queued + running) - running;
        self.all[at].limit = keep + SLACK;
        if queued > keep + SLACK { queued - keep } else { 0 }
    }

    /// `Limit::put_off`.
    fn put_off(&mut self, at: usize) {
        let one = &mut self.all[at];
        if one.protect > one.limit {
            one.limit = one.protect + one.protect / 8;
        }
    }

    fn publish(&mut self, at: usize, running: usize) {
        self.all[at].shown = self.all[at].protect + running;
    }

    pub(super) fn reclaim_offer(&mut self, at: usize) {
        let one = &mut self.all[at];
        (one.offer, one.stale_offer) = (false, false);
        one.protect += 1;
    }

    /// `RunQueue::exchange`, its tick. Returns the cost.
    pub(super) fn tick(&mut self, at: usize) -> Time {
        let n = self.all.len() as u32;
        self.publish(at, 1);
        self.all[at].ticks = n.max(16);
        match self.design {
            Design::Ring => {
                self.renew(at, 1);
                if self.all[at].offer {
                    if self.all[at].stale_offer {
                        self.reclaim_offer(at);
                    } else {
                        self.all[at].stale_offer = true;
                    }
                }
                self.look_at_all()
            }
            Design::Locked => {
                let cost = self.take_back(at);
                self.publish(at, 1);
                self.renew(at, 1);
                cost + self.look_at_all()
            }
            Design::Steal => {
                self.all[at].ticks = 16;
                0
            }
        }
    }

    /// `ring`: takes the items that the neighbour gave away; they arrive after a delay.
    pub(super) fn take_over(&mut self, at: usize, cost: Time) -> bool {
        let from = self.previous(at);
        let n = self.all[from].waiver;
        if n == 0 || from == at {
            return false;
        }
        self.all[at].taking = Some((from, n));
        self.moved(n);
        self.engine.after(cost + n as Time * self.costs.line_ns, Event::Taken(at));
        true
    }

    /// `ring`: gives surplus to the neighbour. Returns whether it did, and the cost.
    pub(super) fn shed(&mut self, at: usize, running: usize) -> (bool, Time) {
        let surplus = self.renew(at, running);
        let mut given = 0;
        if self.all[at].waiver == 0 {
            given = surplus.min(PLACES);
            self.all[at].protect -= given;
            self.all[at].waiver = given;
        }
        self.publish(at, running);
        self.put_off(at);
        let mut cost = self.look_at_all();
        if given > 0 {
            let next = self.next(at);
            cost += self.rouse(next);
            self.call_at_next_switch(next);
        }
        (given > 0, cost)
    }

    /// `RunQueue::surplus` of a busy processor, including the wake-up of another one. Returns the
    /// cost.
    pub(super) fn surplus(&mut self, at: usize) -> Time {
        let someone_idle = self.someone_idles();
        let over = self.all[at].protect > self.all[at].limit;
        let queued = self.all[at].protect;
        let (taker, cost) = match self.design {
            Design::Ring | Design::Locked if !over && (!someone_idle || queued == 0) => {
                (Taker::Nobody, 0)
            }
            Design::Ring => self.surplus_of_ring(at, over, someone_idle),
            Design::Locked => self.surplus_of_locked(at, someone_idle),
            Design::Steal
                if someone_idle && queued > 0 && std::mem::take(&mut self.all[at].fresh) =>
            {
                self.publish(at, 1);
                (Taker::Any, 0)
            }
            Design::Steal => (Taker::Nobody, 0),
        };
        let woken = match taker {
            // `shed` has already woken the neighbour.
            Taker::Nobody | Taker::Next => None,
            // A single offered item is no reason to wake a processor.
            Taker::Any if self.all[at].protect == 0 => None,
            Taker::Any => self.all.iter().position(|one| one.mode == Mode::Sleeps),
        };
        cost + woken.map_or(0, |sleeper| self.rouse(sleeper))
    }

    fn surplus_of_ring(&mut self, at: usize, over: bool, someone_idle: bool) -> (Taker, Time) {
        let mut cost = 0;
        if over {
            let (shed, took) = self.shed(at, 1);
            cost = took;
            if shed {
                return (Taker::Next, cost);
            }
        }
        let one = &mut self.all[at];
        if !someone_idle || one.offer || one.protect == 0 {
            return (Taker::Nobody, cost);
        }
        one.protect -= 1;
        (one.offer, one.stale_offer) = (true, false);
        (Taker::Any, cost)
    }

    fn surplus_of_locked(&mut self, at: usize, someone_idle: bool) -> (Taker, Time) {
        let surplus = self.renew(at, 1);
        let one = &mut self.all[at];
        let mut given = surplus.min(PLACES - one.waiver);
        if given == 0 && someone_idle && one.waiver == 0 && one.protect > 0 {
            given = 1;
        }
        one.protect -= given;
        one.waiver += given;
        self.publish(at, 1);
        self.put_off(at);
        (if given > 0 { Taker::Any } else { Taker::Nobody }, self.look_at_all())
    }

    /// `locked`: the owner takes a batch back from its own Waiver Queue if the lock is free.
    /// Returns the cost.
    fn take_back(&mut self, at: usize) -> Time {
        let now = self.engine.now();
        let one = &mut self.all[at];
        if one.waiver == 0 || one.held_until >= now {
            return 0;
        }
        let n = one.waiver.min(BATCH);
        one.waiver -= n;
        one.protect += n;
        self.outcome.locks += 1;
        // Its own items: no cache line is fetched.
        let cost = self.costs.lock_ns;
        one.held_until = now + cost;
        cost
    }

    /// `RunQueue::pull` of an idle processor.
    pub(super) fn pull(&mut self, at: usize) {
        self.all[at].turn = self.all[at].turn.wrapping_add(1);
        let turn = self.all[at].turn;
        match self.design {
            Design::Ring => {
                let cost = self.look_at_all();
                self.publish(at, 0);
                let others = 0..self.all.len() - 1;
                let offers = others
                    .map(|place| self.other(at, turn, place))
                    .find(|other| self.all[*other].offer);
                let Some(from) = offers else { return self.found_nothing(at, cost) };
                self.all[from].offer = false;
                self.all[at].in_hand = 1;
                self.moved(1);
                self.engine.after(cost + 2 * self.costs.line_ns, Event::Taken(at));
            }
            Design::Locked => self.pull_from(at, 0, 0, None),
            Design::Steal => {
                let cost = self.look_at_all();
                let others = 0..self.all.len() - 1;
                let full = others
                    .map(|place| self.other(at, turn, place))
                    .find(|other| self.all[*other].protect > 0);
                match full {
                    None => self.found_nothing(at, cost),
                    Some(from) => self.steal(at, from, cost),
                }
            }
        }
    }

    /// `locked`: visits the others' Waiver Queues until it has its share.
    pub(super) fn pull_from(
        &mut self,
        at: usize,
        mut place: usize,
        got: usize,
        since: Option<Time>,
    ) {
        self.have_taken(at);
        let now = self.engine.now();
        let share = self.share(at, 0);
        let turn = self.all[at].turn;
        let mut cost = 0;
        while place + 1 < self.all.len() && got < share {
            let from = self.other(at, turn, place);
            cost += self.costs.look_ns;
            let held_until = self.all[from].held_until;
            let waits = since.map_or(0, |since| now - since);
            let give_up = held_until >= now && waits > PATIENCE;
            if self.all[from].waiver == 0 || give_up {
                place += 1;
                continue;
            }
            if held_until >= now {
                self.outcome.waits += u64::from(since.is_none());
                let event = Event::Pull(at, place, got, since.or(Some(now)));
                return self.engine.after(held_until - now + self.costs.line_ns.max(1), event);
            }
            let n = self.all[from].waiver.min(share - got);
            let length = self.costs.lock_ns + n as Time * self.costs.line_ns;
            self.all[from].held_until = now + cost + length;
            self.all[at].taking = Some((from, n));
            self.outcome.locks += 1;
            self.moved(n);
            return self.engine.after(cost + length, Event::Pull(at, place + 1, got + n, None));
        }
        self.publish(at, 0);
        if got == 0 {
            return self.found_nothing(at, cost);
        }
        self.engine.after(cost, Event::Taken(at));
    }

    /// `steal`: copies pointers, which become its own if the other end has not moved meanwhile.
    fn steal(&mut self, at: usize, from: usize, cost: Time) {
        let n = self.all[from].protect.div_ceil(2).min(MAX_BATCH);
        // Both ends, the pointers, and again one end to claim them.
        let lines = 2 + n.div_ceil(A_LINE) as Time + 1;
        self.engine.after(
            cost + lines * self.costs.line_ns,
            Event::Stolen(at, from, n, self.thefts[from]),
        );
    }

    pub(super) fn stolen(&mut self, at: usize, from: usize, n: usize, thefts: u64) {
        let lost = thefts != self.thefts[from] || self.all[from].protect < n;
        if lost {
            self.outcome.waits += 1;
            return self.pull(at);
        }
        self.thefts[from] += 1;
        self.all[from].protect -= n;
        self.all[at].in_hand = n;
        self.all[at].fresh = true;
        self.moved(n);
        self.engine.after(0, Event::Taken(at));
    }

    /// `RunQueue::has_visible_work`.
    pub(super) fn has_visible_work(&self, at: usize) -> bool {
        let others = (0..self.all.len()).filter(|other| *other != at);
        match self.design {
            Design::Ring => {
                let given = self.previous(at) != at && self.all[self.previous(at)].waiver > 0;
                given || others.into_iter().any(|other| self.all[other].offer)
            }
            Design::Locked => self.all.iter().any(|one| one.waiver > 0),
            Design::Steal => others.into_iter().any(|other| self.all[other].protect > 0),
        }
    }
}
