//! Stress test with real kernel threads on all designs. Every item takes all its steps on any VP,
//! with one holder at a time, and no VP sleeps while it can get work. `KUMI_SEED` repeats a run's
//! choices, but not the kernel's scheduling.
#![cfg(not(loom))]

mod items;

use std::{
    hash::{BuildHasher, Hasher},
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    thread,
};

use items::{Item, Items, Random, hold};
use kumihimo_queue::{Capacity, Design, Origin, Owner, Place, Set, Taker};

const STEPS: usize = 200;

struct World {
    set: Set<Item>,
    items: Items,
    /// Items that have not yet taken all their steps.
    left: AtomicUsize,
    /// Number of the next item to spawn.
    unborn: AtomicUsize,
    idle: AtomicUsize,
    sleeps: Vec<AtomicBool>,
    threads: Vec<std::sync::OnceLock<thread::Thread>>,
    /// Carriers that have ended. Provides an order that sanitizers recognise without std's join.
    ended: AtomicUsize,
}

impl World {
    fn wake(&self, vp: usize) -> bool {
        let slept = self.sleeps[vp].load(Ordering::Relaxed)
            && self.sleeps[vp].swap(false, Ordering::AcqRel);
        if slept && let Some(t) = self.threads[vp].get() {
            t.unpark();
        }
        slept
    }

    fn notify(&self, taker: Option<Taker>) {
        match taker {
            None => {}
            Some(Taker::Vp(vp)) => _ = self.wake(vp),
            Some(Taker::Any) => _ = (0..self.sleeps.len()).any(|vp| self.wake(vp)),
        }
    }

    fn inject(&self, vp: usize, item: NonNull<Item>) {
        // SAFETY: the item is held by the caller, in no injector, and lives as long as the world.
        if unsafe { self.set.inject(vp, item) } {
            fence(Ordering::SeqCst);
            self.wake(vp);
        }
    }

    fn over(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}

fn place(random: &mut Random) -> Place {
    let level = [1, 32, 32, 60][random.below(4) as usize];
    let key = (random.below(16) == 0).then(|| random.below(100));
    Place { level, key, front: random.below(16) == 0 }
}

/// Runs one step of an item on VP `vp`: it computes, spawns, yields, blocks until another VP wakes
/// it, or ends.
fn step(world: &World, q: Owner<Item>, vp: usize, item: NonNull<Item>, random: &mut Random) {
    let id = hold(item);
    // SAFETY (of all pushes below): the item is live, held by this thread, and in no queue.
    if random.below(4) == 0 {
        let child = world.unborn.fetch_add(1, Ordering::Relaxed);
        if child < world.items.len() {
            let child = world.items.get(child);
            // SAFETY: the item was just taken from the unspawned ones.
            unsafe { q.push(child, place(random), Origin::Spawn) };
        }
    }
    if random.below(64) == 0 {
        // A longer computation.
        for _ in 0..2_000 {
            std::hint::spin_loop();
        }
    }
    if world.items.held(id) == STEPS {
        if world.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            fence(Ordering::SeqCst);
            for vp in 0..world.sleeps.len() {
                world.wake(vp);
            }
        }
        return;
    }
    match random.below(8) {
        0 => world.inject(random.below(world.sleeps.len() as u64) as usize, item),
        1 => {
            // SAFETY: the item is held by this thread and in no queue.
            unsafe { q.push(item, place(random), Origin::Wake) };
            // The owner may remove the item again while it is queued.
            // SAFETY: items live as long as the world, even if the item has left this VP.
            if random.below(2) == 0 && unsafe { q.remove(item) } {
                world.inject(vp, item);
            }
        }
        // SAFETY: the item is held by this thread and in no queue.
        _ => unsafe { q.push(item, place(random), Origin::Yield) },
    }
}

/// Aborts if its thread panics, because the other VPs would otherwise wait forever for its items.
struct Loud;

impl Drop for Loud {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

fn carry(world: &World, vp: usize, mut random: Random) {
    // SAFETY: this thread is the only carrier of the VP.
    let q = unsafe { world.set.local(vp) };
    let _loud = Loud;
    world.threads[vp].get_or_init(thread::current);
    loop {
        for item in q.take_injected() {
            // SAFETY: `inject` passed the item to this VP.
            unsafe { q.push(item, place(&mut random), Origin::Wake) };
        }
        world.notify(q.exchange());
        if let Some((item, level)) = if random.below(2) == 0 { q.pop_at_least(32) } else { q.pop() }
        {
            assert!(level < 64);
            step(world, q, vp, item, &mut random);
            world.notify(q.surplus(world.idle.load(Ordering::Relaxed) > 0));
            continue;
        }
        if world.over() {
            return;
        }
        world.idle.fetch_add(1, Ordering::SeqCst);
        while !world.over() && q.injector_is_empty() && q.is_empty() && !q.pull() {
            world.sleeps[vp].store(true, Ordering::SeqCst);
            if q.has_visible_work() || world.over() {
                world.sleeps[vp].store(false, Ordering::Relaxed);
                thread::yield_now();
                continue;
            }
            while world.sleeps[vp].load(Ordering::Acquire) {
                thread::park();
            }
        }
        world.idle.fetch_sub(1, Ordering::SeqCst);
    }
}

fn stress(design: Design, vps: usize, n: usize, capacity: Capacity, seed: u64) {
    let world = World {
        set: Set::with_places(design, vps, capacity, 64),
        items: Items::new(n),
        left: AtomicUsize::new(n),
        unborn: AtomicUsize::new(vps),
        idle: AtomicUsize::new(0),
        sleeps: (0..vps).map(|_| AtomicBool::new(false)).collect(),
        threads: (0..vps).map(|_| std::sync::OnceLock::new()).collect(),
        ended: AtomicUsize::new(0),
    };
    for vp in 0..vps {
        world.inject(0, world.items.get(vp));
    }
    thread::scope(|s| {
        for vp in 0..vps {
            let world = &world;
            s.spawn(move || {
                carry(world, vp, Random::new(seed ^ (vp as u64) << 32));
                world.ended.fetch_add(1, Ordering::Release);
            });
        }
    });
    assert_eq!(world.ended.load(Ordering::Acquire), vps);
    for i in 0..n {
        assert_eq!(world.items.held(i), STEPS, "{design:?}, {vps} VPs, seed {seed}");
    }
    let stats: Vec<_> = (0..vps).map(|vp| world.set.stats(vp)).collect();
    let sum = |f: fn(&kumihimo_queue::Stats) -> u64| stats.iter().map(f).sum::<u64>();
    println!(
        "{design:?} {vps} VPs {capacity:?}: {} migrations, {} passes, {} offers, {} back, {} locks, {} waits, {} retries",
        sum(|s| s.migrations),
        sum(|s| s.waiver_passes),
        sum(|s| s.offers),
        sum(|s| s.offers_back),
        sum(|s| s.locks),
        sum(|s| s.lock_waits),
        sum(|s| s.steal_retries),
    );
}

fn all(design: Design) {
    let seed = std::env::var("KUMI_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| std::collections::hash_map::RandomState::new().build_hasher().finish());
    println!("KUMI_SEED={seed}");
    for (vps, n, capacity) in [
        (2, 2_000, Capacity::default()),
        (3, 2_000, Capacity::Fixed(4)),
        (8, 2_000, Capacity::FairShare { slack: 0 }),
        (2, 3, Capacity::default()),
        (1, 500, Capacity::default()),
        (40, 1_000, Capacity::default()),
    ] {
        // Miri is about a thousand times slower.
        let (vps, n) = if cfg!(miri) { (vps.min(3), (n / 100).max(3)) } else { (vps, n) };
        stress(design, vps, n, capacity, seed);
    }
}

#[test]
fn ring_items_take_all_steps() {
    all(Design::Ring);
}

#[cfg(feature = "lab")]
#[test]
fn locked_items_take_all_steps() {
    all(Design::Locked);
}

#[cfg(feature = "lab")]
#[test]
fn steal_items_take_all_steps() {
    all(Design::Steal);
}
