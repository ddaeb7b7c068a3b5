//! Two VPs, or a VP and a sender, act at the same time: at least one observes the other.

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};

use super::{NONE, OwnQueue, PublishedLevels, PublishedTable, Rank, rank, rebalance, send};

struct World {
    published: [PublishedLevels; 2],
    /// Ranks of the items in each VP's injector.
    injectors: [Mutex<Vec<Rank>>; 2],
    raised: [AtomicUsize; 2],
}

impl PublishedTable for World {
    fn len(&self) -> usize {
        2
    }
    fn published(&self, vp: usize) -> &PublishedLevels {
        &self.published[vp]
    }
    fn is_closed(&self, _vp: usize) -> bool {
        false
    }
}

struct Side<'a> {
    world: &'a World,
    me: usize,
    queue: Vec<Rank>,
}

impl OwnQueue for Side<'_> {
    fn is_sent(&mut self) -> bool {
        !self.world.injectors[self.me].lock().unwrap().is_empty()
    }
    fn waits(&mut self) -> Rank {
        self.queue.iter().copied().max().unwrap_or(NONE)
    }
    fn hand(&mut self, to: usize, at_least: Rank) -> bool {
        let Some(at) = self.queue.iter().position(|rank| *rank >= at_least) else { return false };
        let rank = self.queue.swap_remove(at);
        self.world.send(to, rank);
        true
    }
    fn pass_on(&mut self) {}
    fn raise(&mut self, vp: usize) {
        self.world.raised[vp].fetch_add(1, Ordering::SeqCst);
    }
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            published: [PublishedLevels::new(), PublishedLevels::new()],
            injectors: [Mutex::new(Vec::new()), Mutex::new(Vec::new())],
            raised: [AtomicUsize::new(0), AtomicUsize::new(0)],
        })
    }

    fn send(&self, to: usize, rank: Rank) {
        send(
            self,
            to,
            rank,
            |_| (),
            |to| self.injectors[to].lock().unwrap().push(rank),
            |vp| {
                self.raised[vp].fetch_add(1, Ordering::SeqCst);
            },
        );
    }

    /// Collects the injected items, runs the highest, and rebalances. Returns what then runs and
    /// what waits.
    fn step(&self, me: usize, mut runs: Rank, queue: Vec<Rank>) -> (Rank, Vec<Rank>) {
        let mut side = Side { world: self, me, queue };
        self.published[me].take_incoming();
        side.queue.append(&mut self.injectors[me].lock().unwrap());
        if let Some(at) = (0..side.queue.len())
            .filter(|at| side.queue[*at] > runs)
            .max_by_key(|at| side.queue[*at])
        {
            let next = side.queue.swap_remove(at);
            if runs != NONE {
                side.queue.push(runs);
            }
            runs = next;
        }
        rebalance(self, me, runs, &mut side);
        (runs, side.queue)
    }

    /// Lets all asked VPs take their steps. Asserts that afterwards nothing waits that outranks a
    /// running level.
    fn come_to_rest(&self, mut vps: [(Rank, Vec<Rank>); 2]) {
        for _ in 0..6 {
            for vp in 0..2 {
                if self.raised[vp].swap(0, Ordering::SeqCst) != 0 {
                    let (runs, queue) = std::mem::take(&mut vps[vp]);
                    vps[vp] = self.step(vp, runs, queue);
                }
            }
        }
        let lowest =
            vps.iter().map(|(runs, _)| *runs).filter(|runs| *runs != NONE).min().unwrap_or(NONE);
        for (vp, (_, queue)) in vps.iter().enumerate() {
            let sent = self.injectors[vp].lock().unwrap();
            let highest = queue.iter().chain(sent.iter()).copied().max().unwrap_or(NONE);
            assert!(highest <= lowest, "{highest} waits at VP {vp} while {lowest} runs");
        }
    }
}

/// A microprocess is queued on a busy VP while another VP goes down to a lower level.
#[test]
fn queueing_races_with_a_lower_running_level() {
    loom::model(|| {
        let world = World::new();
        let vps = [world.step(0, rank(50), vec![]), world.step(1, rank(50), vec![])];
        let [(runs, _), _] = vps;
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || world.step(1, rank(10), vec![]))
        };
        let mine = world.step(0, runs, vec![rank(30)]);
        let others = other.join().unwrap();
        world.come_to_rest([mine, others]);
    });
}

/// A microprocess is sent to a busy VP while another VP goes down to a lower level.
#[test]
fn sending_races_with_a_lower_running_level() {
    loom::model(|| {
        let world = World::new();
        let [first, _] = [world.step(0, rank(50), vec![]), world.step(1, rank(50), vec![])];
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || world.step(1, rank(10), vec![]))
        };
        world.send(0, rank(30));
        let others = other.join().unwrap();
        world.come_to_rest([first, others]);
    });
}

/// A microprocess is sent to a VP that takes a step at that moment and goes down to a lower level.
#[test]
fn sending_races_with_a_step_of_the_receiver() {
    loom::model(|| {
        let world = World::new();
        let [first, second] = [world.step(0, rank(50), vec![]), world.step(1, rank(20), vec![])];
        let sender = {
            let world = world.clone();
            loom::thread::spawn(move || world.send(0, rank(30)))
        };
        let _ = first;
        let mine = world.step(0, rank(10), vec![]);
        sender.join().unwrap();
        world.come_to_rest([mine, second]);
    });
}
