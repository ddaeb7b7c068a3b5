//! The two designs of P4, on processors that spin while they are idle.
//!
//! Ring: at each context switch, a processor moves the threads in its neighbour's Waiver Queue one
//! by one into its Protect Queue, and those that do not fit into its own Waiver Queue.
//! Conventional: only a processor without a thread to run takes threads, one at a time, under the
//! lock of the Waiver Queue that contains them. The paper specifies neither the capacity of a
//! Protect Queue nor the work of the threads. The ring becomes even only with a capacity of a fair
//! share. The conventional design becomes even only if a taken thread runs and waits, so that the
//! processor is idle again. The model assumes both.

use std::collections::VecDeque;

use super::{CROWD, least_of_even};
use crate::engine::{Engine, Time};

/// The design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// The paper's proposal.
    Ring,
    /// The design with which the paper compares.
    Conventional,
}

impl Design {
    /// All designs of the paper.
    pub const ALL: [Design; 2] = [Design::Ring, Design::Conventional];
}

/// Times of single steps in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Time to create a thread, without queuing it.
    pub create_ns: Time,
    /// Time to insert a thread into a queue, or to remove one.
    pub queue_ns: Time,
    /// Time of a context switch.
    pub switch_ns: Time,
    /// Time of a check by an idle processor.
    pub look_ns: Time,
    /// Additional time of a removal under the lock, until the next processor can acquire the lock.
    pub lock_ns: Time,
}

enum Event {
    Created,
    /// A processor begins a round: it looks for threads of others.
    Turn(usize),
    /// Ring: one more of this number of threads has been taken.
    Passed(usize, usize),
    /// Conventional: the processor has removed a thread, and the lock is free.
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
    /// Waiters for the lock of the creator's Waiver Queue. All other Waiver Queues are always
    /// empty.
    waiting: VecDeque<usize>,
    held: bool,
}

/// Result of a run, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Time until no processor has less than three quarters of its share. `None` if that never
    /// happens.
    pub even: Option<Time>,
    /// Time until then, or until no thread is left to be taken.
    pub end: Time,
}

/// Runs the experiment under a design of the paper.
///
/// # Panics
/// If there are fewer than 2 or more than 256 processors.
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
            // After that, each idle processor checks once more.
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
