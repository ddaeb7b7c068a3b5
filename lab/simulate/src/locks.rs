//! P3's experiment on any number of cores: workers, assigned to the cores in turn, repeat an
//! operation on resources. Parts of the operation are sections to which the locking design assigns
//! locks.

use std::collections::VecDeque;

pub use kumihimo_resource::locking::Locking;
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Time};

/// The paper's numbers of workers, and of operations of each worker.
pub const WORKERS: usize = 24;
/// See [`WORKERS`].
pub const OPERATIONS: usize = 100;
/// Numbers of cores for every curve.
pub const CORES: [usize; 8] = [1, 2, 3, 4, 8, 16, 32, 64];

/// Number of visits of an operation to each kind: open and close (`create`, `region`), send and
/// receive (`message`).
const VISITS: usize = 2;
/// Units of the engine's time in a nanosecond: sections take a few nanoseconds, and their parts
/// less.
const FINE: f64 = 1000.0;

/// The way in which a core waits for a lock. The core runs nothing else meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Waiters form a queue, each on its own cache line. A release transfers one cache line, to the
    /// first waiter.
    Fifo,
    /// All waiters poll the lock's cache line. After a release the line passes through all waiters,
    /// and any of them may get the lock.
    Spinning,
}

impl Waiting {
    /// All ways to wait.
    pub const ALL: [Waiting; 2] = [Waiting::Fifo, Waiting::Spinning];

    /// Name in rows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Waiting::Fifo => "fifo",
            Waiting::Spinning => "spin",
        }
    }
}

/// One operation, executed alone on one core: its total time, and the parts in each kind of
/// section. Times are in nanoseconds and are sums over the kinds and over both visits. The rest of
/// `total_ns` is outside of all sections.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Number of kinds of resources in the operation: 2 in `create` (process, compute) and `region`
    /// (region, user space), 1 in `message` (container).
    pub kinds: usize,
    /// Total time of the operation.
    pub total_ns: f64,
    /// Time in the resources' own sections.
    pub resource_ns: f64,
    /// Time in the name tree.
    pub names_ns: f64,
    /// Time in the shared parts of each kind's table: free slots, counters.
    pub shared_ns: f64,
}

/// Input of a simulation, as `kumi bench resources --simulate --times FILE` reads it: a JSON
/// object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Machine and method of the measurement, for the report.
    pub machine: String,
    /// Nanoseconds to move a cache line to another core: the cost of acquiring a lock that another
    /// core had last, and of handing one over.
    pub hand_over_ns: f64,
    /// Creation and end of a microprocess with its resource entries.
    pub create: Load,
    /// Allocation and release of 4 KB of memory.
    pub region: Load,
    /// Transfer of 4 KB between a sender and a receiver on the same virtual processor.
    pub message: Load,
}

impl Times {
    /// The machine of the README's figures: `lab/results/resources/times.json`.
    #[must_use]
    pub fn today() -> Times {
        let load = |kinds, total_ns, resource_ns| Load {
            kinds,
            total_ns,
            resource_ns,
            names_ns: 0.0,
            shared_ns: 0.0,
        };
        Times {
            machine: "AMD EPYC, 2 cores, 22 November 2026, measured by kumi bench resources: times of the loads on one VP; sections as sums of parts \
                      measured separately (opening and closing an entry 38 ns, copying 4 KB 171, transfer of a cache line to the other core 32); \
                      resources have no names, and shared lists do not overflow"
                .to_owned(),
            hand_over_ns: 32.2,
            create: load(2, 246.4, 113.9),
            region: load(1, 108.4, 75.9),
            message: load(1, 513.6, 208.6),
        }
    }

    /// Name and times of each load.
    #[must_use]
    pub fn loads(&self) -> [(&'static str, Load); 3] {
        [("create", self.create), ("region", self.region), ("message", self.message)]
    }

    /// Checks that the times are possible.
    ///
    /// # Errors
    /// Description of the first impossible value.
    pub fn check(&self) -> Result<(), String> {
        let time = |what: &str, ns: f64| match ns {
            ns if ns.is_finite() && (0.0..1e12).contains(&ns) => Ok(()),
            _ => Err(format!("{what}: {ns} is not a time in nanoseconds (0 to 1e12)")),
        };
        time("hand_over_ns", self.hand_over_ns)?;
        for (name, load) in self.loads() {
            let parts = [
                ("resource_ns", load.resource_ns),
                ("names_ns", load.names_ns),
                ("shared_ns", load.shared_ns),
            ];
            for (part, ns) in [("total_ns", load.total_ns)].into_iter().chain(parts) {
                time(&format!("{name}.{part}"), ns)?;
            }
            let sum: f64 = parts.iter().map(|(_, ns)| ns).sum();
            // Tolerance for separately measured parts.
            if load.total_ns == 0.0 || sum > load.total_ns * 1.001 {
                return Err(format!(
                    "{name}: the sections take {sum} ns, but the operation {} ns",
                    load.total_ns
                ));
            }
            if !(1..=64).contains(&load.kinds) {
                return Err(format!("{name}.kinds: {}, expected 1 to 64", load.kinds));
            }
        }
        Ok(())
    }
}

/// A step of a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Computes for this many nanoseconds without a lock.
    Compute(f64),
    /// Computes while holding a lock.
    Locked {
        /// Number of the lock.
        lock: usize,
        /// Duration in nanoseconds.
        ns: f64,
    },
}

impl Load {
    /// Steps of one operation of worker `worker` under `design`.
    #[must_use]
    pub fn program(&self, design: Locking, worker: usize) -> Vec<Step> {
        let part = 1.0 / (VISITS * self.kinds) as f64;
        let [resource, names, shared] =
            [self.resource_ns, self.names_ns, self.shared_ns].map(|ns| ns * part);
        let outside = (self.total_ns * part - resource - names - shared).max(0.0);
        // Lock numbers: the kinds, their trees, their shared parts, then each worker's own
        // resources.
        let lock = |row: usize, kind: usize| row * self.kinds + kind;
        let mut steps = Vec::new();
        for visit in 0..VISITS {
            for step in 0..self.kinds {
                // Resources are closed in reverse order.
                let kind = if visit == 0 { step } else { self.kinds - 1 - step };
                steps.push(Step::Compute(outside));
                match design {
                    Locking::Kind => steps.extend([
                        Step::Locked { lock: lock(0, kind), ns: resource + shared },
                        Step::Locked { lock: lock(1, 0), ns: names },
                    ]),
                    Locking::Id => steps.extend([
                        Step::Locked { lock: lock(3 + worker, kind), ns: resource },
                        Step::Locked { lock: lock(2, kind), ns: shared },
                        Step::Locked { lock: lock(1, kind), ns: names },
                    ]),
                    Locking::Vp => steps.push(Step::Compute(resource + shared + names)),
                }
            }
        }
        steps.retain(|step| !matches!(step, Step::Compute(0.0) | Step::Locked { ns: 0.0, .. }));
        steps
    }
}

/// The simulated machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Number of cores.
    pub cores: usize,
    /// The way in which they wait.
    pub waiting: Waiting,
    /// See [`Times::hand_over_ns`].
    pub hand_over_ns: f64,
}

/// Nanoseconds until the last worker has run its program `operations` times.
///
/// # Panics
/// If there is no core.
#[must_use]
pub fn run(machine: &Machine, programs: &[Vec<Step>], operations: usize, seed: u64) -> f64 {
    let mut world = World::new(machine, programs, operations, seed);
    while let Some(event) = world.engine.next() {
        match event {
            Event::Free(core) => world.go_on(core),
            Event::Released(core, lock) => world.release(core, lock),
        }
    }
    assert!(world.cores.iter().all(|core| core.turns.is_empty()), "a core waits indefinitely");
    world.engine.now() as f64 / FINE
}

/// Time of a load on several cores, relative to one core.
#[must_use]
pub fn relative(load: &Load, design: Locking, machine: &Machine, seed: u64) -> f64 {
    let programs: Vec<_> = (0..WORKERS).map(|worker| load.program(design, worker)).collect();
    let on = |cores| run(&Machine { cores, ..*machine }, &programs, OPERATIONS, seed);
    on(machine.cores) / on(1)
}

enum Event {
    /// A core has completed a step.
    Free(usize),
    /// A core has completed a section.
    Released(usize, usize),
}

struct Core {
    /// The core's workers with their remaining operations. They take turns of one operation.
    turns: VecDeque<(usize, usize)>,
    /// Next step of the first worker's operation.
    step: usize,
}

#[derive(Clone, Default)]
struct Lock {
    held: bool,
    /// Core whose cache contains the lock.
    last: Option<usize>,
    /// Waiting cores, each with the duration of its section.
    waiting: VecDeque<(usize, Time)>,
}

struct World<'a> {
    engine: Engine<Event>,
    programs: &'a [Vec<Step>],
    cores: Vec<Core>,
    locks: Vec<Lock>,
    waiting: Waiting,
    hand_over: Time,
}

fn fine(ns: f64) -> Time {
    (ns * FINE).round() as Time
}

impl<'a> World<'a> {
    fn new(
        machine: &Machine,
        programs: &'a [Vec<Step>],
        operations: usize,
        seed: u64,
    ) -> World<'a> {
        assert!(machine.cores > 0, "no core");
        let turns = |core| {
            let own = (core..programs.len()).step_by(machine.cores);
            own.filter(|worker| operations > 0 && !programs[*worker].is_empty())
                .map(|w| (w, operations))
                .collect()
        };
        let cores: Vec<_> =
            (0..machine.cores).map(|core| Core { turns: turns(core), step: 0 }).collect();
        let highest = programs.iter().flatten().filter_map(|step| match step {
            Step::Locked { lock, .. } => Some(*lock),
            Step::Compute(_) => None,
        });
        let locks = vec![Lock::default(); highest.max().map_or(0, |lock| lock + 1)];
        let mut engine = Engine::new(seed);
        for core in 0..cores.len() {
            engine.after(0, Event::Free(core));
        }
        let hand_over = fine(machine.hand_over_ns);
        World { engine, programs, cores, locks, waiting: machine.waiting, hand_over }
    }

    /// Starts the core's next step, if there is one.
    fn go_on(&mut self, core: usize) {
        let own = &mut self.cores[core];
        let Some((worker, left)) = own.turns.front().copied() else { return };
        let program = &self.programs[worker];
        let step = program[own.step];
        own.step += 1;
        if own.step == program.len() {
            own.step = 0;
            own.turns.pop_front();
            if left > 1 {
                own.turns.push_back((worker, left - 1));
            }
        }
        match step {
            Step::Compute(ns) => self.engine.after(fine(ns), Event::Free(core)),
            Step::Locked { lock: n, ns } => {
                let lock = &mut self.locks[n];
                if lock.held {
                    lock.waiting.push_back((core, fine(ns)));
                    return;
                }
                lock.held = true;
                let elsewhere = lock.last.is_some_and(|last| last != core);
                let cost = if elsewhere { self.hand_over } else { 0 };
                self.engine.after(cost + fine(ns), Event::Released(core, n));
            }
        }
    }

    fn release(&mut self, core: usize, n: usize) {
        let lock = &mut self.locks[n];
        lock.last = Some(core);
        let many = lock.waiting.len();
        if many == 0 {
            lock.held = false;
        } else {
            let (next, cost) = match self.waiting {
                Waiting::Fifo => (0, self.hand_over),
                Waiting::Spinning => (self.engine.draw(many), self.hand_over * many as Time),
            };
            let (next, length) = lock.waiting.remove(next).expect("one of the waiters");
            self.engine.after(cost + length, Event::Released(next, n));
        }
        self.go_on(core);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn machine(cores: usize) -> Machine {
        Machine { cores, waiting: Waiting::Fifo, hand_over_ns: 0.0 }
    }

    fn same(workers: usize, program: &[Step]) -> Vec<Vec<Step>> {
        vec![program.to_vec(); workers]
    }

    const LOAD: Load =
        Load { kinds: 2, total_ns: 1000.0, resource_ns: 400.0, names_ns: 300.0, shared_ns: 100.0 };

    #[test]
    fn one_core_processes_everything_in_sequence() {
        let program = [
            Step::Compute(10.0),
            Step::Locked { lock: 0, ns: 2.5 },
            Step::Locked { lock: 1, ns: 5.0 },
        ];
        let waits = Machine { hand_over_ns: 99.0, waiting: Waiting::Spinning, ..machine(1) };
        assert_eq!(run(&waits, &same(24, &program), 100, 1), 24.0 * 100.0 * 17.5);
    }

    #[test]
    fn without_locks_time_is_divided_by_the_cores() {
        for cores in CORES.into_iter().chain([5, 24]) {
            let time = run(&machine(cores), &same(24, &[Step::Compute(10.0)]), 100, 1);
            assert_eq!(time, 24_usize.div_ceil(cores) as f64 * 1000.0, "{cores} cores");
            let vp = Machine { waiting: Waiting::Spinning, hand_over_ns: 50.0, ..machine(cores) };
            assert_eq!(
                relative(&LOAD, Locking::Vp, &vp, 1),
                24_usize.div_ceil(cores) as f64 / 24.0
            );
        }
    }

    #[test]
    fn single_lock_prevents_overlap() {
        let programs = same(24, &[Step::Locked { lock: 0, ns: 10.0 }]);
        for cores in [2, 5, 64] {
            assert_eq!(run(&machine(cores), &programs, 100, 1), 24_000.0);
        }
        // With a queue, each hand-over is one transfer, and the first section needs none. The lock
        // always comes from another core.
        let queued = Machine { hand_over_ns: 1.0, ..machine(4) };
        assert_eq!(run(&queued, &programs, 100, 1), 24_000.0 + 2_399.0);
        // Three cores spin all the time, until workers end.
        let spinning = Machine { waiting: Waiting::Spinning, ..queued };
        let time = run(&spinning, &programs, 100, 1);
        assert!((24_000.0 + 2_399.0 * 2.8..=24_000.0 + 2_399.0 * 3.0).contains(&time), "{time}");
    }

    #[test]
    fn two_locks_in_sequence_are_a_pipeline() {
        let programs =
            same(24, &[Step::Locked { lock: 0, ns: 10.0 }, Step::Locked { lock: 1, ns: 10.0 }]);
        // Both stages are busy, except during the first fill and the last drain.
        assert_eq!(run(&machine(2), &programs, 100, 1), 24_000.0 + 10.0);
        // More cores than stages have no effect.
        assert_eq!(run(&machine(8), &programs, 100, 1), 24_000.0 + 10.0);
    }

    #[test]
    fn designs_have_their_declared_locks() {
        let locks = |design, worker| {
            let steps = LOAD.program(design, worker).into_iter();
            steps
                .filter_map(|step| {
                    if let Step::Locked { lock, ns } = step { Some((lock, ns)) } else { None }
                })
                .collect::<Vec<_>>()
        };
        // A kind's own lock together with its shared part, then the single tree; closed in reverse
        // order.
        let kind = [
            (0, 125.0),
            (2, 75.0),
            (1, 125.0),
            (2, 75.0),
            (1, 125.0),
            (2, 75.0),
            (0, 125.0),
            (2, 75.0),
        ];
        assert_eq!(locks(Locking::Kind, 5), kind);
        let id = locks(Locking::Id, 5);
        assert_eq!(id[..3], [(16, 100.0), (4, 25.0), (2, 75.0)]);
        assert_eq!(id[3..6], [(17, 100.0), (5, 25.0), (3, 75.0)]);
        assert!(locks(Locking::Vp, 5).is_empty());
        for design in Locking::ALL {
            let of = |step: Step| match step {
                Step::Compute(ns) | Step::Locked { ns, .. } => ns,
            };
            let total: f64 = LOAD.program(design, 0).into_iter().map(of).sum();
            assert_eq!(total, LOAD.total_ns);
        }
    }

    #[test]
    fn impossible_times_are_refused() {
        let good = Times {
            machine: String::new(),
            hand_over_ns: 1.0,
            create: LOAD,
            region: LOAD,
            message: LOAD,
        };
        assert_eq!((good.check(), Times::today().check()), (Ok(()), Ok(())));
        let with = |change: &dyn Fn(&mut Times)| {
            let mut times = good.clone();
            change(&mut times);
            times.check().expect_err("cannot be")
        };
        assert!(with(&|t| t.hand_over_ns = -1.0).contains("hand_over_ns: -1"));
        assert!(with(&|t| t.region.names_ns = f64::NAN).contains("region.names_ns"));
        assert!(
            with(&|t| t.message.names_ns = 501.0)
                .contains("message: the sections take 1001 ns, but the operation 1000 ns")
        );
        assert!(with(&|t| t.create.kinds = 0).contains("create.kinds"));
        assert!(
            with(&|t| t.create =
                Load { kinds: 1, total_ns: 0.0, resource_ns: 0.0, names_ns: 0.0, shared_ns: 0.0 })
            .contains("but the operation 0 ns")
        );
        let unknown = serde_json::to_string(&good).unwrap().replace("hand_over_ns", "handover");
        assert!(
            serde_json::from_str::<Times>(&unknown).unwrap_err().to_string().contains("handover")
        );
    }

    fn programs() -> impl Strategy<Value = Vec<Vec<Step>>> {
        let step = prop_oneof![
            (1u32..50).prop_map(|ns| Step::Compute(ns.into())),
            (0usize..4, 1u32..50).prop_map(|(lock, ns)| Step::Locked { lock, ns: ns.into() }),
        ];
        // The same program for all workers, as in the loads. With different ones, a scheduling
        // anomaly (Graham 1969) can make more cores slower.
        prop::collection::vec(step, 1..6).prop_map(|program| same(12, &program))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The time is at least that of the longest lock and of the longest core, at most that of
        /// one core, and the same for the same seed.
        #[test]
        fn time_is_within_its_bounds(programs in programs(), cores in 1usize..16, seed: u64) {
            let of = |step: &Step| match *step { Step::Compute(ns) | Step::Locked { ns, .. } => ns };
            let total: f64 = programs[0].iter().map(of).sum();
            let on_lock = |n: usize| -> f64 {
                programs[0].iter().filter(|s| matches!(s, Step::Locked { lock, .. } if *lock == n)).map(of).sum()
            };
            let longest = (0..4).map(on_lock).fold(total * 12_usize.div_ceil(cores) as f64 / 12.0, f64::max);
            for waiting in Waiting::ALL {
                let machine = Machine { waiting, ..machine(cores) };
                let time = run(&machine, &programs, 10, seed);
                prop_assert!(time >= longest * 120.0 - 0.5 && time <= total * 120.0 + 0.5, "{time}");
                prop_assert_eq!(time, run(&machine, &programs, 10, seed));
            }
        }

        #[test]
        fn more_cores_are_never_slower_with_free_transfers(
            parts in (1u32..100, 0u32..100, 0u32..100, 0u32..100),
            kinds in 1usize..4,
        ) {
            let [outside, resource_ns, names_ns, shared_ns] = [parts.0, parts.1, parts.2, parts.3].map(f64::from);
            let load = Load { kinds, total_ns: outside + resource_ns + names_ns + shared_ns, resource_ns, names_ns, shared_ns };
            for design in Locking::ALL {
                let times = [1, 2, 4, 8, 24].map(|cores| relative(&load, design, &machine(cores), 1));
                prop_assert!(times.is_sorted_by(|fewer, more| *more <= fewer + 0.02), "{} {times:?}", design.name());
            }
        }
    }
}
