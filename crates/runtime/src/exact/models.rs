//! Two VPs, or a VP and a sender, act at the same time: at least one sees the other.

use loom::sync::Arc;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicUsize, Ordering};

use super::{Mark, NONE, Owner, Row, Shown, mark, send, settle};

struct World {
    shown: [Shown; 2],
    /// Marks in each VP's injector.
    injectors: [Mutex<Vec<Mark>>; 2],
    raised: [AtomicUsize; 2],
}

impl Row for World {
    fn len(&self) -> usize {
        2
    }
    fn shown(&self, vp: usize) -> &Shown {
        &self.shown[vp]
    }
    fn is_stuck(&self, _vp: usize) -> bool {
        false
    }
}

struct Side<'a> {
    world: &'a World,
    me: usize,
    queue: Vec<Mark>,
}

impl Owner for Side<'_> {
    fn is_sent(&mut self) -> bool {
        !self.world.injectors[self.me].lock().unwrap().is_empty()
    }
    fn waits(&mut self) -> Mark {
        self.queue.iter().copied().max().unwrap_or(NONE)
    }
    fn hand(&mut self, to: usize, at_least: Mark) -> bool {
        let Some(at) = self.queue.iter().position(|mark| *mark >= at_least) else { return false };
        let mark = self.queue.swap_remove(at);
        self.world.send(to, mark);
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
            shown: [Shown::new(), Shown::new()],
            injectors: [Mutex::new(Vec::new()), Mutex::new(Vec::new())],
            raised: [AtomicUsize::new(0), AtomicUsize::new(0)],
        })
    }

    fn send(&self, to: usize, mark: Mark) {
        send(
            self,
            to,
            mark,
            |_| (),
            |to| self.injectors[to].lock().unwrap().push(mark),
            |vp| {
                self.raised[vp].fetch_add(1, Ordering::SeqCst);
            },
        );
    }

    /// Takes in what was sent, runs the highest, settles. Returns what then runs and what waits.
    fn step(&self, me: usize, mut runs: Mark, queue: Vec<Mark>) -> (Mark, Vec<Mark>) {
        let mut side = Side { world: self, me, queue };
        self.shown[me].take_in();
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
        settle(self, me, runs, &mut side);
        (runs, side.queue)
    }

    /// Those that were raised take the steps that they were asked for; then nothing lower runs
    /// while something higher waits.
    fn come_to_rest(&self, mut vps: [(Mark, Vec<Mark>); 2]) {
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

/// One VP gets something that it does not run at once, while another one goes down to a lower
/// level.
#[test]
fn one_queues_while_the_other_sinks() {
    loom::model(|| {
        let world = World::new();
        let vps = [world.step(0, mark(50), vec![]), world.step(1, mark(50), vec![])];
        let [(runs, _), _] = vps;
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || world.step(1, mark(10), vec![]))
        };
        let mine = world.step(0, runs, vec![mark(30)]);
        let others = other.join().unwrap();
        world.come_to_rest([mine, others]);
    });
}

/// Something is sent to a busy VP while another one goes down to a lower level.
#[test]
fn one_is_sent_something_while_the_other_sinks() {
    loom::model(|| {
        let world = World::new();
        let [first, _] = [world.step(0, mark(50), vec![]), world.step(1, mark(50), vec![])];
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || world.step(1, mark(10), vec![]))
        };
        world.send(0, mark(30));
        let others = other.join().unwrap();
        world.come_to_rest([first, others]);
    });
}

/// Something is sent to a VP that takes a step at that moment, and then sinks.
#[test]
fn one_is_sent_something_while_it_steps() {
    loom::model(|| {
        let world = World::new();
        let [first, second] = [world.step(0, mark(50), vec![]), world.step(1, mark(20), vec![])];
        let sender = {
            let world = world.clone();
            loom::thread::spawn(move || world.send(0, mark(30)))
        };
        let _ = first;
        let mine = world.step(0, mark(10), vec![]);
        sender.join().unwrap();
        world.come_to_rest([mine, second]);
    });
}
