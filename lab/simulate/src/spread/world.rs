//! Processors and their events: the runtime's loop around the queues (`crates/runtime`:
//! `switch.rs`, `idling.rs`).

use super::{CROWD, Costs, Design, Outcome, PATIENCE, least_of_even};
use crate::engine::{Engine, Time};

/// As in `idling.rs`: time for which an idle processor spins, ...
const SPIN: Time = 15_000;
/// ... and time for which it then sleeps beside busy ones, at first and at most.
const FIRST_NAP: Time = 200_000;
const LONGEST_NAP: Time = 10_000_000;
/// As in `turn_clock.rs`: number of switches between two checks for idle processors.
const SLOW_STEPS: u32 = 61;
/// A time in which every processor runs many rounds.
const QUIET: Time = 1_000_000;

/// State of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Running a thread.
    Busy,
    /// Idle, looking for work until this time.
    Spins(Time),
    Sleeps,
    /// Woken, but not running yet.
    Wakes,
}

/// A processor.
#[derive(Clone, Debug)]
pub(super) struct Processor {
    pub(super) mode: Mode,
    /// Number of items in the Protect Queue; under `steal`, in the deque.
    pub(super) protect: usize,
    /// Number of items in the Waiver Queue.
    pub(super) waiver: usize,
    pub(super) offer: bool,
    pub(super) stale_offer: bool,
    /// Items stolen or taken from an offer that are not queued yet.
    pub(super) in_hand: usize,
    /// The Waiver Queue from which items are being taken, and their number. Other processors see
    /// the items there until the transfer is complete.
    pub(super) taking: Option<(usize, usize)>,
    /// Published load.
    pub(super) shown: usize,
    /// `Limit::queued`.
    pub(super) limit: usize,
    /// Switches until the next tick, and until the next slow steps.
    pub(super) ticks: u32,
    slow: u32,
    pub(super) turn: usize,
    /// Time until which the lock of its Waiver Queue is held.
    pub(super) held_until: Time,
    /// True if an item was pushed since the last notification (`steal`).
    pub(super) fresh: bool,
    /// Time of the last switch; and the time since which switches have the current length.
    last_switch: Time,
    /// Number of times that the next event was replaced by an earlier one.
    stamp: u64,
    nap: Time,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The creator creates a thread.
    Create,
    /// A busy processor has switched this many times; void if the stamp has changed.
    Switched(usize, u32, u64),
    /// An idle processor looks for work.
    Look(usize),
    /// Items that were taken over have arrived.
    Taken(usize),
    /// A `pull` continues with another processor. Fields: processor, position of the other one,
    /// number of items so far, and the time since which it waits for the lock.
    Pull(usize, usize, usize, Option<Time>),
    /// Stolen items have arrived, unless another processor was faster. The last field is the
    /// victim's count of switches and thefts at the start.
    Stolen(usize, usize, usize, u64),
    /// A processor was woken, or its sleep is over; void if the stamp has changed.
    Awake(usize, u64),
}

pub(super) struct World<'a> {
    pub(super) design: Design,
    pub(super) costs: &'a Costs,
    pub(super) engine: Engine<Event>,
    pub(super) all: Vec<Processor>,
    /// Number of threads still to be created.
    pub(super) to_create: usize,
    pub(super) outcome: Outcome,
    /// Number of thefts from each processor, which make concurrent thefts fail.
    pub(super) thefts: Vec<u64>,
    last_move: Time,
}

impl<'a> World<'a> {
    /// All processors sleep except the first, on which the creator runs, which is one thread more
    /// than the crowd.
    pub(super) fn new(design: Design, processors: usize, costs: &'a Costs, seed: u64) -> World<'a> {
        let idle = Processor {
            mode: Mode::Sleeps,
            protect: 0,
            waiver: 0,
            offer: false,
            stale_offer: false,
            in_hand: 0,
            taking: None,
            shown: 0,
            limit: if processors == 1 { usize::MAX } else { 0 },
            ticks: 1,
            slow: SLOW_STEPS,
            turn: 0,
            held_until: 0,
            fresh: false,
            last_switch: 0,
            stamp: 0,
            nap: FIRST_NAP,
        };
        let mut all = vec![idle; processors];
        for (at, one) in all.iter_mut().enumerate() {
            one.turn = at;
        }
        all[0].mode = Mode::Busy;
        all[0].shown = 1;
        let mut engine = Engine::new(seed);
        engine.after(costs.create_ns, Event::Create);
        let thefts = vec![0; processors];
        World {
            design,
            costs,
            engine,
            all,
            to_create: CROWD,
            outcome: Outcome::default(),
            thefts,
            last_move: 0,
        }
    }

    pub(super) fn run(mut self) -> Outcome {
        let even = least_of_even(self.all.len());
        while let Some(event) = self.engine.next() {
            if self.engine.now() > PATIENCE {
                break;
            }
            self.happen(event);
            let least = (0..self.all.len()).map(|at| self.has(at)).min().unwrap_or(0);
            self.outcome.least = least;
            if least > 0 {
                self.outcome.busy.get_or_insert(self.engine.now());
            }
            if least >= even && self.to_create == 0 {
                self.outcome.even = Some(self.engine.now());
                break;
            }
            if self.is_final() {
                break;
            }
        }
        self.check();
        self.outcome
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Create => self.create(),
            Event::Switched(at, n, stamp) if self.all[at].stamp == stamp => self.switched(at, n),
            Event::Awake(at, stamp) if self.all[at].stamp == stamp => {
                self.all[at].stamp += 1;
                self.look(at, true);
            }
            Event::Switched(..) | Event::Awake(..) => {}
            Event::Look(at) => self.look(at, false),
            Event::Taken(at) => self.taken(at),
            Event::Pull(at, place, got, since) => self.pull_from(at, place, got, since),
            Event::Stolen(at, from, n, thefts) => self.stolen(at, from, n, thefts),
        }
    }

    /// Number of threads of a processor: queued, running, and given away but not yet taken.
    fn has(&self, at: usize) -> usize {
        let one = &self.all[at];
        one.protect
            + one.waiver
            + usize::from(one.offer)
            + usize::from(one.mode == Mode::Busy)
            + one.in_hand
    }

    /// Returns whether no further move is possible: no processor is idle, and in the ring nothing
    /// has been passed on for long.
    fn is_final(&self) -> bool {
        let rests = self.design != Design::Ring || self.engine.now() > self.last_move + QUIET;
        rests && self.to_create == 0 && !self.someone_idles()
    }

    pub(super) fn moved(&mut self, n: usize) {
        self.outcome.moves += n as u64;
        self.last_move = self.engine.now();
    }

    /// Checks that no thread is lost or duplicated, including the creator.
    fn check(&self) {
        let all: usize = (0..self.all.len()).map(|at| self.has(at)).sum();
        assert_eq!(all + self.to_create, CROWD + 1, "threads");
    }

    fn create(&mut self) {
        self.to_create -= 1;
        self.all[0].protect += 1;
        self.all[0].fresh = true;
        let cost = self.surplus(0);
        if self.to_create > 0 {
            self.engine.after(cost + self.costs.create_ns, Event::Create);
        } else {
            self.next_switch(0, cost);
        }
    }

    /// A thread continues. The processor checks nothing relevant before the next tick or slow
    /// steps, unless it is notified.
    fn next_switch(&mut self, at: usize, cost: Time) {
        let now = self.engine.now();
        let one = &mut self.all[at];
        one.stamp += 1;
        one.last_switch = now + cost;
        let n = one.ticks.min(one.slow).max(1);
        let event = Event::Switched(at, n, one.stamp);
        self.engine.after(cost + Time::from(n) * self.costs.switch_ns, event);
    }

    /// An item was put where a busy processor sees it at its next switch.
    pub(super) fn call_at_next_switch(&mut self, at: usize) {
        let now = self.engine.now();
        let one = &mut self.all[at];
        if one.mode != Mode::Busy || one.taking.is_some() || (at == 0 && self.to_create > 0) {
            return;
        }
        one.stamp += 1;
        let n = (now.saturating_sub(one.last_switch) / self.costs.switch_ns + 1) as u32;
        let due = one.last_switch + Time::from(n) * self.costs.switch_ns;
        self.engine.after(due - now, Event::Switched(at, n, one.stamp));
    }

    /// A busy processor has made `n` context switches: `Carrier::give_way`.
    fn switched(&mut self, at: usize, n: u32) {
        let one = &mut self.all[at];
        one.slow = one.slow.saturating_sub(n);
        one.fresh |= one.protect > 0;
        let mut cost = 0;
        if one.ticks <= n {
            cost += self.tick(at);
        } else {
            one.ticks -= n;
        }
        if self.design == Design::Ring && self.take_over(at, cost) {
            return;
        }
        self.go_on(at, cost);
    }

    /// The rest of a switch.
    fn go_on(&mut self, at: usize, mut cost: Time) {
        if self.all[at].protect == 0 && self.all[at].offer {
            self.reclaim_offer(at);
        }
        if self.all[at].slow == 0 {
            self.all[at].slow = SLOW_STEPS;
            cost += self.surplus(at);
        } else if self.design == Design::Steal && self.someone_idles() {
            cost += self.surplus(at);
        }
        self.next_switch(at, cost);
    }

    /// Queues items that were taken over from the neighbour, taken under a lock by a `pull`, or
    /// stolen.
    fn taken(&mut self, at: usize) {
        self.have_taken(at);
        let one = &mut self.all[at];
        one.protect += one.in_hand;
        one.in_hand = 0;
        let ran = one.mode == Mode::Busy;
        let mut cost = 0;
        if self.design == Design::Ring && one.protect > one.limit {
            cost += self.shed(at, 0).1;
        }
        if ran {
            self.go_on(at, cost);
        } else if self.all[at].protect > 0 {
            self.begin(at, cost);
        } else {
            self.engine.after(cost + self.costs.spin_ns, Event::Look(at));
        }
    }

    /// Items being taken from a Waiver Queue now belong to the taker.
    pub(super) fn have_taken(&mut self, at: usize) {
        if let Some((from, n)) = self.all[at].taking.take() {
            self.all[from].waiver -= n;
            self.all[at].protect += n;
        }
    }

    /// An idle processor has found a thread to run.
    pub(super) fn begin(&mut self, at: usize, cost: Time) {
        let one = &mut self.all[at];
        one.protect -= 1;
        one.mode = Mode::Busy;
        one.nap = FIRST_NAP;
        one.slow = SLOW_STEPS;
        self.next_switch(at, cost);
    }

    pub(super) fn someone_idles(&self) -> bool {
        self.all.iter().any(|one| one.mode != Mode::Busy)
    }

    /// An idle processor looks for a thread to run: `Carrier::run`, `Vp::idle`.
    fn look(&mut self, at: usize, awake: bool) {
        let now = self.engine.now();
        if awake {
            self.all[at].mode = Mode::Spins(now + SPIN);
        }
        if self.design == Design::Ring && self.take_over(at, 0) {
            return;
        }
        if self.all[at].protect > 0 {
            return self.begin(at, 0);
        }
        self.pull(at);
    }

    /// An idle processor has found nothing.
    pub(super) fn found_nothing(&mut self, at: usize, cost: Time) {
        let now = self.engine.now();
        let Mode::Spins(until) = self.all[at].mode else {
            unreachable!("only a spinning processor looks for work")
        };
        if now < until || self.has_visible_work(at) {
            return self.engine.after(cost + self.costs.spin_ns, Event::Look(at));
        }
        let one = &mut self.all[at];
        one.mode = Mode::Sleeps;
        one.stamp += 1;
        let event = Event::Awake(at, one.stamp);
        let nap = one.nap;
        one.nap = (nap * 2).min(LONGEST_NAP);
        self.engine.after(nap + self.costs.wake_ns, event);
    }

    /// Wakes a sleeping processor. Returns the cost.
    pub(super) fn rouse(&mut self, at: usize) -> Time {
        let one = &mut self.all[at];
        if one.mode != Mode::Sleeps {
            return 0;
        }
        one.mode = Mode::Wakes;
        one.stamp += 1;
        self.outcome.wakes += 1;
        self.engine
            .after(self.costs.call_ns + self.costs.wake_ns, Event::Awake(at, self.all[at].stamp));
        self.costs.call_ns
    }
}
