//! Property tests: the Protect Queue against a sorted map, and the designs' conservation and
//! balance of items.
#![cfg(not(loom))]

mod items;

use std::collections::BTreeMap;

use items::{Item, Items, Random, hold};
use kumihimo_queue::{Capacity, Design, Origin, Owner, Place, Set, protect_queue::ProtectQueue};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(Place),
    Pop,
    PopAtLeast(u8),
    /// The n-th queued item, or one that is not queued.
    Remove(usize),
}

fn place() -> impl Strategy<Value = Place> {
    // Few levels and keys, so that they collide.
    let level = prop_oneof![Just(0u8), Just(5), Just(6), Just(63)];
    (level, prop::option::of(0..4u64), any::<bool>()).prop_map(|(level, key, front)| Place {
        level,
        key,
        front,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => place().prop_map(Step::Push),
        2 => Just(Step::Pop),
        1 => prop_oneof![Just(0u8), Just(6), Just(63)].prop_map(Step::PopAtLeast),
        2 => any::<prop::sample::Index>().prop_map(|i| Step::Remove(i.index(64))),
    ]
}

/// The order of items: higher levels first; keyed items before others; keys; arrival, where items
/// for the front count downwards.
type Order = (u8, bool, u64, i64);

fn order(place: Place, arrival: i64) -> Order {
    let arrival = if place.front { -arrival } else { arrival };
    (63 - place.level, place.key.is_none(), place.key.unwrap_or(0), arrival)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn protect_queue_is_a_sorted_map(steps in prop::collection::vec(step(), 1..200)) {
        let items = Items::new(64);
        let mut queue = ProtectQueue::<Item>::new(7);
        let mut model: BTreeMap<Order, (usize, Place)> = BTreeMap::new();
        let mut free: Vec<usize> = (0..64).collect();
        for (now, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push(place) => {
                    let Some(i) = free.pop() else { continue };
                    // SAFETY: the item is held by this thread and in no queue.
                    unsafe { queue.push(items.get(i), place, Origin::Spawn) };
                    model.insert(order(place, now as i64 + 1), (i, place));
                }
                Step::Pop | Step::PopAtLeast(_) => {
                    let floor = if let Step::PopAtLeast(l) = step { l } else { 0 };
                    let want = model.first_key_value().filter(|(_, (_, p))| p.level >= floor).map(|(&k, _)| k);
                    let want = want.and_then(|k| model.remove(&k)).map(|(i, p)| (i, p.level));
                    let got = if let Step::PopAtLeast(l) = step { queue.pop_at_least(l) } else { queue.pop() };
                    let got = got.map(|(item, level)| (hold(item), level));
                    prop_assert_eq!(got, want);
                    free.extend(got.map(|(i, _)| i));
                }
                Step::Remove(i) => {
                    let at = model.iter().find(|(_, (j, _))| *j == i).map(|(&k, _)| k);
                    // SAFETY: the item is live, queued or not.
                    let got = unsafe { queue.remove(items.get(i)) };
                    prop_assert_eq!(got, at.is_some());
                    if let Some(k) = at {
                        model.remove(&k);
                        free.push(i);
                    }
                }
            }
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(queue.highest(), model.first_key_value().map(|(_, (_, p))| p.level));
            prop_assert_eq!(queue.lowest(), model.last_key_value().map(|(_, (_, p))| p.level));
            for level in [0, 5, 6, 63] {
                let n = model.values().filter(|(_, p)| p.level == level).count();
                prop_assert_eq!(queue.level_len(level), n);
                prop_assert_eq!(queue.levels() >> level & 1 == 1, n > 0);
            }
        }
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(item, _)| hold(item)).collect();
        prop_assert_eq!(rest, model.values().map(|(i, _)| *i).collect::<Vec<_>>());
    }

    /// Performs random operations on all VPs with any capacity and any number of places. Every item
    /// must then be in exactly one place, and VPs that pull and pop in turn must empty all queues.
    #[test]
    fn items_are_neither_lost_nor_duplicated(
        seed: u64, design in 0..Design::ALL.len(), vps in 1..6usize, places in 0..5u32,
        capacity in prop_oneof![(0..9usize).prop_map(Capacity::Fixed), (0..3usize).prop_map(|slack| Capacity::FairShare { slack })],
    ) {
        let mut random = Random::new(seed);
        let items = Items::new(96);
        let set = Set::with_places(Design::ALL[design], vps, capacity, 1 << places);
        // SAFETY: this thread is the carrier of all VPs.
        let queues: Vec<Owner<Item>> = (0..vps).map(|vp| unsafe { set.local(vp) }).collect();
        let mut outside: Vec<usize> = (0..items.len()).collect();
        for _ in 0..2_000 {
            let vp = random.below(vps as u64) as usize;
            let q = queues[vp];
            match random.below(10) {
                0..3 => {
                    let Some(i) = outside.pop() else { continue };
                    let key = (random.below(4) == 0).then(|| random.below(5));
                    let place = Place { level: random.below(3) as u8 * 20, key, front: random.below(8) == 0 };
                    let origin = [Origin::Spawn, Origin::Wake, Origin::Yield][random.below(3) as usize];
                    // SAFETY: the item is in no queue and held by this thread.
                    unsafe { q.push(items.get(i), place, origin) };
                }
                3 => outside.extend(q.pop().map(|(item, _)| hold(item))),
                4 => {
                    // A regular context switch: one item runs and yields.
                    let _ = q.exchange();
                    if let Some((item, level)) = q.pop_at_least(20) {
                        prop_assert!(level >= 20);
                        hold(item);
                        // SAFETY: the item was just popped.
                        unsafe { q.push(item, Place::back(level), Origin::Yield) };
                    }
                    let _ = q.surplus(random.below(2) == 0);
                }
                5 => { let _ = q.exchange(); }
                6 => { let _ = q.surplus(random.below(2) == 0); }
                7 => { q.pull(); }
                8 => {
                    let i = random.below(items.len() as u64) as usize;
                    // SAFETY: the item is live.
                    let removed = unsafe { q.remove(items.get(i)) };
                    prop_assert!(!(removed && outside.contains(&i)));
                    if removed {
                        outside.push(i);
                    }
                }
                _ => {
                    let i = random.below(items.len() as u64) as usize;
                    // SAFETY: the item is live.
                    let moved = unsafe { q.requeue(items.get(i), Place::back(40), Origin::Wake) };
                    prop_assert!(!(moved && outside.contains(&i)));
                }
            }
        }
        // All VPs idle, so every item leaves the queues.
        for _ in 0..=vps {
            for q in &queues {
                q.pull();
                outside.extend(std::iter::from_fn(|| q.pop()).map(|(item, _)| hold(item)));
            }
        }
        for (vp, q) in queues.iter().enumerate() {
            prop_assert!(!set.has_visible_work(vp) && q.is_empty());
            prop_assert_eq!(q.len(), 0);
        }
        outside.sort_unstable();
        prop_assert_eq!(outside, (0..items.len()).collect::<Vec<_>>());
    }
}

/// The paper's experiment on simulated VPs: all items start on VP 0, and the VPs switch in turn.
/// Returns the number of rounds until the distribution is even.
fn rounds_until(
    even: impl Fn(&[usize]) -> bool,
    (design, capacity): (Design, Capacity),
    (n, vps, born_on): (usize, usize, usize),
) -> (usize, Vec<usize>) {
    let items = Items::new(n);
    let set = Set::new(design, vps, capacity);
    // SAFETY: this thread is the carrier of all VPs, and pushes items that it holds.
    unsafe {
        let mut running: Vec<Option<_>> = vec![None; vps];
        for i in 0..n {
            set.local(born_on).push(items.get(i), Place::back(32), Origin::Spawn);
        }
        for round in 0..1_000 {
            let have = |running: &Vec<Option<_>>| -> Vec<usize> {
                (0..vps)
                    .map(|vp| set.local(vp).len() + usize::from(running[vp].is_some()))
                    .collect()
            };
            let now = have(&running);
            if even(&now) {
                return (round, now);
            }
            for vp in 0..vps {
                let q = set.local(vp);
                let _ = q.exchange();
                let mut next = q.pop();
                if next.is_none() && running[vp].is_none() && q.pull() {
                    next = q.pop();
                }
                if let Some((item, _)) = next
                    && let Some(old) = running[vp].replace(item)
                {
                    q.push(old, Place::back(32), Origin::Yield);
                }
                let someone_idle = running.iter().any(Option::is_none);
                let _ = q.surplus(someone_idle);
            }
        }
        (
            1_000,
            (0..vps).map(|vp| set.local(vp).len() + usize::from(running[vp].is_some())).collect(),
        )
    }
}

#[test]
fn ring_converges_to_an_even_distribution() {
    for (n, vps) in [(256usize, 8), (256, 7), (1000, 8), (9, 8), (40, 2), (100, 3), (64, 64)] {
        for born_on in [0, vps - 1, vps / 2] {
            for slack in [0, 1] {
                // Without slack, the distribution is as even as possible; with slack, every VP is
                // within the slack of its share.
                let even = |have: &[usize]| {
                    let (low, high) = (n / vps - slack.min(n / vps), n.div_ceil(vps) + slack);
                    have.iter().sum::<usize>() == n && have.iter().all(|h| (low..=high).contains(h))
                };
                let rule = (Design::Ring, Capacity::FairShare { slack });
                let (rounds, end) = rounds_until(even, rule, (n, vps, born_on));
                assert!(
                    rounds < 1_000,
                    "{n} items on {vps} VPs, slack {slack}, from {born_on}: {end:?}"
                );
            }
        }
    }
}

/// In this design, each VP may leave one item in its Waiver Queue for an idle VP.
#[cfg(feature = "lab")]
#[test]
fn locked_converges_to_an_even_distribution() {
    let even = |have: &[usize]| {
        have.iter().sum::<usize>() >= 256 - 8 && have.iter().all(|h| (31..=33).contains(h))
    };
    let (rounds, end) = rounds_until(even, (Design::Locked, Capacity::default()), (256, 8, 0));
    assert!(rounds < 1_000, "{end:?}");
}

/// The rule bounds the items that a VP keeps; the places bound the items that it gives away.
#[test]
fn fixed_capacity_bounds_kept_items() {
    let items = Items::new(100);
    let set = Set::new(Design::Ring, 2, Capacity::Fixed(10));
    // SAFETY: this thread is the carrier of both VPs; items are pushed while they are in no queue.
    unsafe {
        let q = set.local(0);
        for i in 0..100 {
            q.push(items.get(i), Place::back(1), Origin::Spawn);
        }
        assert!(q.surplus(false).is_some());
        assert_eq!(q.len(), 10);
        let next = set.local(1);
        assert!(next.exchange().is_some());
        assert_eq!((next.len(), q.len()), (10, 10));
        // The VP at the other end takes no more than its capacity either, and the items between the
        // two are visible.
        assert!(q.has_visible_work());
    }
}
