//! Tests of the protocol under random loads: VPs take whole steps in any order, and events arrive
//! late.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::{
    NONE, OwnQueue, PublishedLevels, PublishedTable, Rank, find_outranked, rank, rebalance, send,
};

struct Vp {
    runs: Cell<Option<(usize, u8)>>,
    queue: RefCell<Vec<(u8, VecDeque<usize>)>>,
    injector: RefCell<Vec<(usize, u8)>>,
    /// An event for the VP is in transit.
    raised: Cell<bool>,
    steps: Cell<u32>,
}

struct World {
    published: Vec<PublishedLevels>,
    stuck: Option<usize>,
    vps: Vec<Vp>,
}

impl PublishedTable for World {
    fn len(&self) -> usize {
        self.published.len()
    }
    fn published(&self, vp: usize) -> &PublishedLevels {
        &self.published[vp]
    }
    fn is_closed(&self, vp: usize) -> bool {
        self.stuck == Some(vp)
    }
}

struct Side<'a>(&'a World, usize);

impl OwnQueue for Side<'_> {
    fn is_sent(&mut self) -> bool {
        !self.0.vps[self.1].injector.borrow().is_empty()
    }
    fn waits(&mut self) -> Rank {
        self.0.vps[self.1].highest().map_or(NONE, rank)
    }
    fn hand(&mut self, to: usize, at_least: Rank) -> bool {
        match self.0.vps[self.1].pop(at_least as u8 - 1) {
            Some(item) => {
                self.0.send(to, item);
                true
            }
            None => false,
        }
    }
    fn pass_on(&mut self) {
        self.0.vps[self.1].raised.set(true);
    }
    fn raise(&mut self, vp: usize) {
        self.0.vps[vp].raised.set(true);
    }
}

impl Vp {
    fn highest(&self) -> Option<u8> {
        self.queue
            .borrow()
            .iter()
            .filter(|(_, items)| !items.is_empty())
            .map(|(level, _)| *level)
            .max()
    }
    fn push(&self, (id, level): (usize, u8)) {
        let mut queue = self.queue.borrow_mut();
        match queue.iter_mut().find(|(l, _)| *l == level) {
            Some((_, items)) => items.push_back(id),
            None => queue.push((level, VecDeque::from([id]))),
        }
    }
    fn pop(&self, at_least: u8) -> Option<(usize, u8)> {
        let highest = self.highest().filter(|level| *level >= at_least)?;
        let mut queue = self.queue.borrow_mut();
        let (level, items) = queue.iter_mut().find(|(level, _)| *level == highest)?;
        items.pop_front().map(|id| (id, *level))
    }
    fn waiting(&self) -> Vec<(usize, u8)> {
        let queue = self.queue.borrow();
        let queued = queue.iter().flat_map(|(level, items)| items.iter().map(|id| (*id, *level)));
        queued.chain(self.injector.borrow().iter().copied()).collect()
    }
}

impl World {
    fn new(n: usize) -> World {
        let vp = || Vp {
            runs: Cell::new(None),
            queue: RefCell::default(),
            injector: RefCell::default(),
            raised: Cell::new(false),
            steps: Cell::new(0),
        };
        let published = (0..n).map(|_| PublishedLevels::new()).collect();
        let world = World { published, stuck: None, vps: (0..n).map(|_| vp()).collect() };
        (0..n).for_each(|vp| world.step(vp, false));
        world
    }

    fn send(&self, to: usize, (id, level): (usize, u8)) {
        let put = |to: usize| {
            let vp = &self.vps[to];
            vp.injector.borrow_mut().push((id, level));
            if vp.runs.get().is_none() {
                vp.raised.set(true);
            }
        };
        send(self, to, rank(level), |_| (), put, |vp| self.vps[vp].raised.set(true));
    }

    /// Performs a step of the loop. With `leaves`, the running microprocess parks or ends.
    fn step(&self, me: usize, leaves: bool) {
        let vp = &self.vps[me];
        vp.raised.set(false);
        let asked = self.published[me].asked.load(Ordering::Relaxed);
        if leaves {
            vp.runs.set(None);
        }
        self.published[me].take_incoming();
        for item in vp.injector.take() {
            vp.push(item);
        }
        match vp.runs.get() {
            None => vp.runs.set(vp.pop(0)),
            Some(running) => {
                if let Some(next) = vp.pop(running.1 + 1) {
                    vp.push(running);
                    vp.runs.set(Some(next));
                }
            }
        }
        self.show(me);
        vp.steps.set(vp.steps.get() + 1);
        if asked {
            assert!(
                !self.holders().contains(&me),
                "VP {me} took the step it was asked for, and still holds the highest level"
            );
        }
    }

    fn show(&self, me: usize) {
        let runs = self.vps[me].runs.get().map_or(NONE, |(_, level)| rank(level));
        rebalance(self, me, runs, &mut Side(self, me));
    }

    /// Queues a microprocess that the running one on `me` has made ready, as the loop does.
    fn push(&self, me: usize, item: (usize, u8)) {
        let vp = &self.vps[me];
        vp.push(item);
        if vp.runs.get().is_none_or(|(_, level)| item.1 > level) {
            vp.raised.set(true);
        }
        if vp.runs.get().is_some() {
            self.show(me);
        }
    }

    fn lowest_running(&self) -> Option<u8> {
        self.vps.iter().filter_map(|vp| vp.runs.get()).map(|(_, level)| level).min()
    }

    /// Returns the VPs on which the highest waiting level waits, if a lower level runs somewhere. A
    /// VP that will run its waiting microprocess at its own next step is not counted.
    fn holders(&self) -> Vec<usize> {
        let expected = |vp: &Vp| {
            let next = vp.waiting().iter().map(|(_, level)| *level).max();
            vp.runs.get().map(|(_, level)| next.map_or(level, |next| next.max(level)))
        };
        let lowest = self.vps.iter().filter_map(expected).min();
        let surplus = |vp: &Vp| {
            let waits = vp.waiting().into_iter().map(|(_, level)| level);
            waits.filter(|level| vp.runs.get().is_some_and(|(_, runs)| *level <= runs)).max()
        };
        let highest = self.vps.iter().filter_map(surplus).max();
        if highest.is_none() || lowest.is_none() || highest <= lowest {
            return Vec::new();
        }
        (0..self.vps.len()).filter(|vp| surplus(&self.vps[*vp]) == highest).collect()
    }

    fn inversion(&self) -> Option<(usize, u8)> {
        let lowest = self.lowest_running()?;
        self.vps.iter().flat_map(Vp::waiting).find(|(_, level)| *level > lowest)
    }
}

/// Random numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

fn load(seed: u64) {
    let mut random = Random(seed);
    let n = 1 + random.below(6);
    let levels = 2 + random.below(8);
    let world = World::new(n);
    let mut next = 0;
    for _ in 0..400 {
        let vp = random.below(n);
        let item = (next, (random.below(levels) * 7) as u8);
        match random.below(8) {
            0 | 1 => {
                next += 1;
                world.send(vp, item);
            }
            2 if world.vps[vp].runs.get().is_some() => {
                next += 1;
                world.push(vp, item);
            }
            3 | 4 => world.step(vp, true),
            5 => world.step(vp, false),
            _ if world.vps[vp].raised.get() => world.step(vp, false),
            _ => {}
        }
        // At least one holder of the highest level was asked already. Only its next step, and the
        // next step of the receiving VP, are waited for.
        let holders = world.holders();
        assert!(
            holders.is_empty() || holders.iter().any(|vp| world.vps[*vp].raised.get()),
            "seed {seed}: {holders:?}"
        );
        if random.below(10) == 0 {
            // All events arrive, in any order; the number of steps is bounded, too.
            let before: Vec<_> = world.vps.iter().map(|vp| vp.steps.get()).collect();
            while let Some(raised) =
                (0..n).map(|i| (i + vp) % n).find(|vp| world.vps[*vp].raised.get())
            {
                world.step(raised, false);
                let steps = world.vps[raised].steps.get() - before[raised];
                assert!(
                    steps <= 2 * n as u32 + 2,
                    "seed {seed}: VP {raised} of {n} takes too many steps"
                );
            }
            assert_eq!(
                world.inversion(),
                None,
                "seed {seed}: a priority inversion remains after all requested steps"
            );
        }
    }
}

#[test]
fn requested_steps_remove_all_inversions() {
    for seed in 0..3000 {
        load(seed);
    }
}

#[test]
fn idle_vps_are_preferred_but_trigger_no_hand_over() {
    let world = World::new(3);
    world.send(0, (0, 10));
    world.step(0, false);
    // VP 0 runs 10, the others idle: no level below 10 runs, but one below 11 does.
    assert_eq!(find_outranked(&world, Some(1), 0, rank(10)), None);
    assert_eq!(find_outranked(&world, Some(1), 0, rank(11)), Some(2));
    assert_eq!(find_outranked(&world, None, 0, rank(11)), Some(1));
}

#[test]
fn stuck_vp_receives_nothing_and_causes_no_request() {
    let mut world = World::new(3);
    for vp in 0..3 {
        world.send(vp, (vp, 20));
        world.step(vp, false);
    }
    world.step(0, true);
    world.send(0, (3, 10));
    world.step(0, false);
    // VP 0 runs 10, the others 20.
    assert_eq!(find_outranked(&world, Some(1), 0, rank(15)), Some(0));
    world.stuck = Some(0);
    assert_eq!(find_outranked(&world, Some(1), 0, rank(15)), None);
    assert_eq!(
        find_outranked(&world, None, 0, rank(25)),
        Some(1),
        "the VP with the next lowest level"
    );
    world.push(1, (4, 15));
    assert_eq!(world.vps[1].waiting(), [(4, 15)], "the item stays where it can run");
    assert!(!world.vps[1].raised.get(), "only the stuck VP runs a lower level");
}
