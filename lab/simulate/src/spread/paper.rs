//! The two designs as P4 has them, on processors that spin while they idle.
//!
//! Ring: at each context switch a processor takes, one by one, what is in its neighbour's Waiver
//! Queue into its Protect Queue, and what does not fit into its own Waiver Queue. Conventional:
//! only a processor that has nothing to run takes, one thread at a time, under the lock of the
//! Waiver Queue in which it stands. The paper says neither how much a Protect Queue holds nor what
//! the threads do. Only with a fair share each would the ring come to rest evenly; and the
//! conventional design gets there only if a thread that was taken runs and waits, so that the
//! processor idles again. Both are assumed.

use std::collections::VecDeque;

use super::{CROWD, least_of_even};
use crate::engine::{Engine, Time};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// What the paper proposes.
    Ring,
    /// What it compares with.
    Conventional,
}

impl Design {
    /// Both.
    pub const ALL: [Design; 2] = [Design::Ring, Design::Conventional];
}

/// What single steps take, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// To create a thread; queuing it not included.
    pub create_ns: Time,
    /// To insert a thread into a queue, or to remove one.
    pub queue_ns: Time,
    /// A context switch.
    pub switch_ns: Time,
    /// A look of one that idles.
    pub look_ns: Time,
    /// What a removal under the lock takes beyond one without, until the next one can have the
    /// lock.
    pub lock_ns: Time,
}

enum Event {
    Created,
    /// The processor begins a turn: it looks for threads of others.
    Turn(usize),
    /// The ring: one more is taken, of so many.
    Passed(usize, usize),
    /// Conventional: the processor has removed one, and the lock is open again.
    Removed(usize),
}

#[derive(Clone, Default)]
struct Processor {
    protect: usize,
    waiver: usize,
}

struct World {
    design: Design,
    costs: Costs,
    engine: Engine<Event>,
    all: Vec<Processor>,
    capacity: usize,
    to_create: usize,
    /// Waiters for the lock of the creator's Waiver Queue: no other one ever has something there.
    waiting: VecDeque<usize>,
    held: bool,
}

/// How a run came out, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Until no processor has less than three quarters of its share. `None`: that does not come.
    pub even: Option<Time>,
    /// Until then, or until nothing is left to be taken.
    pub end: Time,
}

/// The experiment under a design of the paper's.
///
/// # Panics
/// If there are less than 2 or more than 256 processors.
#[must_use]
pub fn run(design: Design, processors: usize, costs: Costs, seed: u64) -> Outcome {
    assert!((2..=CROWD).contains(&processors), "{processors} processors");
    let mut engine = Engine::new(seed);
    engine.after(costs.create_ns + costs.queue_ns, Event::Created);
    for at in 1..processors {
        engine.after(costs.look_ns, Event::Turn(at));
    }
    let all = vec![Processor::default(); processors];
    let capacity = CROWD / processors;
    let waiting = VecDeque::new();
    World { design, costs, engine, all, capacity, to_create: CROWD, waiting, held: false }.run()
}

impl World {
    fn run(mut self) -> Outcome {
        let even = least_of_even(self.all.len());
        let mut came = None;
        let mut end = 0;
        while let Some(event) = self.engine.next() {
            match event {
                Event::Created => self.created(),
                Event::Turn(at) => self.turn(at),
                Event::Passed(at, left) => self.passed(at, left),
                Event::Removed(at) => self.removed(at),
            }
            // Afterwards those that idle look once more each.
            if self.to_create > 0 || self.held || self.all[0].waiver > 0 {
                end = self.engine.now();
            }
            let has = |one: &Processor| one.protect + one.waiver;
            if self.to_create == 0 && self.all.iter().all(|one| has(one) >= even) {
                end = self.engine.now();
                came = Some(end);
                break;
            }
        }
        let all: usize = self.all.iter().map(|one| one.protect + one.waiver).sum();
        assert_eq!(all + self.to_create + usize::from(self.held), CROWD, "threads");
        Outcome { even: came, end }
    }

    fn insert(&mut self, at: usize) {
        let one = &mut self.all[at];
        if one.protect < self.capacity {
            one.protect += 1;
        } else {
            one.waiver += 1;
        }
    }

    fn created(&mut self) {
        self.insert(0);
        self.to_create -= 1;
        if self.to_create > 0 {
            self.engine.after(self.costs.create_ns + self.costs.queue_ns, Event::Created);
        } else {
            self.engine.after(self.costs.switch_ns, Event::Turn(0));
        }
    }

    fn turn(&mut self, at: usize) {
        match self.design {
            Design::Ring => {
                let from = (at + self.all.len() - 1) % self.all.len();
                match self.all[from].waiver {
                    0 => self.next_turn(at),
                    n => self.engine.after(2 * self.costs.queue_ns, Event::Passed(at, n)),
                }
            }
            // The creator has its own threads to run.
            Design::Conventional if at == 0 => {}
            Design::Conventional if self.all[0].waiver == 0 => {
                if self.to_create > 0 || self.held {
                    self.engine.after(self.costs.look_ns, Event::Turn(at));
                }
            }
            Design::Conventional if self.held => self.waiting.push_back(at),
            Design::Conventional => self.remove(at),
        }
    }

    fn next_turn(&mut self, at: usize) {
        let runs = self.all[at].protect > 0;
        self.engine
            .after(if runs { self.costs.switch_ns } else { self.costs.look_ns }, Event::Turn(at));
    }

    fn passed(&mut self, at: usize, left: usize) {
        let from = (at + self.all.len() - 1) % self.all.len();
        self.all[from].waiver -= 1;
        self.insert(at);
        if left > 1 {
            self.engine.after(2 * self.costs.queue_ns, Event::Passed(at, left - 1));
        } else {
            self.next_turn(at);
        }
    }

    fn remove(&mut self, at: usize) {
        self.held = true;
        self.all[0].waiver -= 1;
        self.engine.after(self.costs.queue_ns + self.costs.lock_ns, Event::Removed(at));
    }

    fn removed(&mut self, at: usize) {
        self.held = false;
        self.all[at].protect += 1;
        self.engine.after(self.costs.switch_ns, Event::Turn(at));
        while !self.held
            && let Some(next) = self.waiting.pop_front()
        {
            self.turn(next);
        }
    }
}
