//! The plan of each benchmark: its cells, and the contenders in each.
//!
//! `gates`, `servers`, `unmodified` and `unwrapped` contain the cells of those benchmarks, `apart`
//! has the contenders of the benchmarks that are not run cell by cell, and `order` draws the order
//! within a round from the seed. Input are command-line options, output are
//! cells; nothing is started here. From the rest of the crate, this module uses only `contender`.

mod apart;
mod gates;
pub mod order;
mod servers;
pub mod unmodified;
mod unwrapped;

use super::contender::{Contender, Runtime};
pub use apart::{
    TRACED, connection_servers, control, echo_servers, hostile, http_servers, kv_servers,
    preempted, priority_servers, report, stall_capacity, traced, with_source,
};
pub use servers::ORGANISATIONS;
pub use unwrapped::{is_whole, peer_of};

/// All benchmarks in the order of `all`.
pub const NAMES: [&str; 38] = [
    "yield",
    "null-fork",
    "message",
    "sieve",
    "skynet",
    "parked",
    "mutex",
    "timer",
    "spread",
    "queues",
    "latency",
    "echo",
    "kv",
    "http",
    "priority-io",
    "connections",
    "files",
    "stall",
    "unwrapped",
    "events",
    "preempt",
    "priority-local",
    "spin-holder",
    "kernel-threads",
    "trace",
    "syscall-batch",
    "transaction",
    "resources",
    "control",
    "observe",
    "report",
    "rpc",
    "remote",
    "priority",
    "inversion",
    "servers",
    "hostile",
    "run",
];

/// The benchmarks of `--quick`.
pub const QUICK: [&str; 9] =
    ["yield", "null-fork", "message", "sieve", "skynet", "mutex", "timer", "latency", "echo"];

/// Queue designs of Kumihimo.
pub const QUEUES: [&str; 3] = ["ring", "locked", "steal"];

/// Event sources, without `off`.
pub const SOURCES: [&str; 3] = ["bpf", "perf", "watch"];

/// Kinds of stalls, without `none`.
pub const STALLS: [&str; 5] = ["fault", "flock", "read", "fuse", "blocking"];

/// Priority of looping stallers, relative to the requests.
pub const LOOPS: [&str; 2] = ["lower", "equal"];

/// Quanta of `preempt`.
const QUANTA: [&str; 3] = ["quantum=1ms", "quantum=5ms", "quantum=10ms"];

/// Policies of `priority-local`.
const POLICIES: [&str; 3] = ["policy=fixed", "policy=round-robin", "policy=feedback"];

/// Loads of `resources`; `join` is `create_space`, whose programs do nothing else.
pub const LOADS: [&str; 4] = ["create", "region", "message", "join"];

/// Locking designs of the resource table.
pub const LOCKINGS: [&str; 3] = ["kind", "id", "vp"];

/// Numbers of VPs beyond the cores of most machines: `resources --full`.
const OVER_COMMITTED: [usize; 2] = [4, 8];

/// Pairs of slices of `hostile`, one with the attack and one without.
const HOSTILE_PAIRS: usize = 9;

/// Number of VPs of `stall`.
pub const STALL_VPS: usize = 2;

/// Default number of rounds.
pub fn runs(bench: &str, rivals: bool, full: bool) -> usize {
    match bench {
        "hostile" => HOSTILE_PAIRS,
        "run" => unmodified::RUNS,
        "servers" if full => servers::PAPER_RUNS,
        "unwrapped" => {
            if rivals || full {
                unwrapped::RUNS
            } else {
                1
            }
        }
        _ => 5,
    }
}

/// Options of the command line.
#[derive(Clone, Debug)]
pub struct Options {
    pub vps: Vec<usize>,
    pub rivals: bool,
    pub full: bool,
    pub runs: usize,
    pub queue: String,
    /// Seed of all random orders.
    pub seed: u64,
}

/// Contenders that are compared with each other: same work, same number of VPs, run in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub vps: usize,
    pub contenders: Vec<Contender>,
}

/// The cells of `bench`. Without `full`, only those of its targets.
pub fn cells(bench: &str, options: &Options) -> Vec<Cell> {
    let plan = Plan { options };
    let each = |make: &dyn Fn(usize) -> Vec<Contender>| {
        options.vps.iter().map(|&vps| Cell { vps, contenders: make(vps) }).collect::<Vec<_>>()
    };
    match bench {
        "yield" => each(&|_| join([plan.both(&[]), plan.rivals(&[], 5), plan.more(&[], 5)])),
        "null-fork" => join([
            each(&|_| {
                let part = &["part=sequential"];
                join([plan.both(part), plan.rivals(part, 5), plan.more(part, 5)])
            }),
            each(&|_| {
                let part = &["part=bulk"];
                join([plan.both(part), plan.rivals(part, 3), plan.more(part, 3)])
            }),
            each(&|_| plan.rival(Runtime::Std, &["part=process"], 3)),
        ]),
        "message" => each(&|_| join([plan.both(&[]), plan.rivals(&[], 5), plan.more(&[], 5)])),
        "sieve" => join([
            each(&|_| {
                let part = &["part=primes700"];
                join([plan.full_or_both(part), plan.rivals(part, 5), plan.more(part, 5)])
            }),
            each(&|_| plan.sieve_2000()),
        ]),
        "skynet" => each(&|_| plan.skynet()),
        "parked" => plan.parked(),
        "mutex" => each(&|_| plan.mutex()),
        "timer" => each(&|_| join([plan.full_or_both(&[]), plan.rivals(&[], 2)])),
        "spread" => vec![Cell { vps: 8, contenders: plan.spread() }],
        "queues" => each(&|_| plan.queues()),
        "latency" => each(&|_| plan.latency()),
        "files" => each(&|_| plan.files()),
        "stall" => plan.stall(),
        "unwrapped" => plan.unwrapped(),
        // A hand-off at each sleep (sticky off), and the default.
        "events" => {
            [&["part=wakes", "sticky=off"][..], &["part=wakes", "sticky=on"], &["part=preempts"]]
                .map(|part| Cell {
                    vps: 1,
                    contenders: join(SOURCES.map(|s| {
                        plan.sourced(s, part, if part[0] == "part=wakes" { 1 } else { usize::MAX })
                    })),
                })
                .into()
        }
        "preempt" => {
            vec![Cell { vps: 1, contenders: join(QUANTA.map(|quantum| plan.preempt(quantum))) }]
        }
        "priority-local" => each(&|_| join(POLICIES.map(|policy| plan.designs("full", &[policy])))),
        "spin-holder" => {
            each(&|_| join(["lock=with", "lock=without"].map(|lock| plan.ours("full", &[lock]))))
        }
        "kernel-threads" => plan.kernel_threads(),
        "resources" => plan.resources(),
        "transaction" => vec![Cell { vps: 1, contenders: plan.ours("full", &[]) }],
        "syscall-batch" => vec![Cell { vps: 1, contenders: plan.ours("full", &[]) }],
        "rpc" => plan.rpc(),
        "remote" => plan.remote(),
        "priority" => plan.priority(),
        "inversion" => plan.inversion(),
        "servers" => plan.servers(),
        "trace" => {
            vec![Cell { vps: 1, contenders: TRACED.map(|trace| traced(options, trace)).into() }]
        }
        _ => Vec::new(),
    }
}

/// Numbers of connections of `echo`'s cells.
pub const ECHO_CONNECTIONS: [usize; 4] = [1, 10, 1_000, 10_000];

/// Ways in which the floor's servers wait; `echo` uses the better one.
pub const FLOORS: [&str; 2] = ["epoll", "uring"];

fn join<T>(lists: impl IntoIterator<Item = Vec<T>>) -> Vec<T> {
    lists.into_iter().flatten().collect()
}

struct Plan<'a> {
    options: &'a Options,
}

impl Plan<'_> {
    fn make(
        &self,
        runtime: Runtime,
        variant: &'static str,
        queue: &str,
        args: &[&str],
        at_most: usize,
    ) -> Contender {
        let args = args.iter().map(|&a| a.to_owned()).collect();
        Contender { runtime, variant, queue: queue.to_owned(), args, at_most }
    }

    fn ours(&self, variant: &'static str, args: &[&str]) -> Vec<Contender> {
        vec![self.make(Runtime::Kumihimo, variant, &self.options.queue, args, usize::MAX)]
    }

    fn both(&self, args: &[&str]) -> Vec<Contender> {
        join([self.ours("full", args), self.ours("lean", args)])
    }

    fn full_or_both(&self, args: &[&str]) -> Vec<Contender> {
        if self.options.full { self.both(args) } else { self.ours("full", args) }
    }

    fn designs(&self, variant: &'static str, args: &[&str]) -> Vec<Contender> {
        QUEUES
            .iter()
            .map(|queue| self.make(Runtime::Kumihimo, variant, queue, args, usize::MAX))
            .collect()
    }

    fn rival(&self, runtime: Runtime, args: &[&str], at_most: usize) -> Vec<Contender> {
        if self.options.rivals {
            vec![self.make(runtime, "-", "-", args, at_most)]
        } else {
            Vec::new()
        }
    }

    /// Go and Tokio run as often as Kumihimo; kernel threads are slow and get `std_at_most` runs.
    fn rivals(&self, args: &[&str], std_at_most: usize) -> Vec<Contender> {
        join([
            self.rival(Runtime::Go, args, usize::MAX),
            self.rival(Runtime::Tokio, args, usize::MAX),
            self.rival(Runtime::Std, args, std_at_most),
        ])
    }

    /// Rivals where threads alone are measured. Those of May and Boost share thread-local storage,
    /// as lean microprocesses do.
    fn more(&self, args: &[&str], at_most: usize) -> Vec<Contender> {
        let runtimes = [Runtime::May, Runtime::Boost, Runtime::Java];
        join(runtimes.map(|runtime| self.rival(runtime, args, at_most)))
    }

    fn sourced(&self, source: &str, args: &[&str], at_most: usize) -> Vec<Contender> {
        let source = format!("events={source}");
        let args = [args, &[source.as_str()]].concat();
        vec![self.make(Runtime::Kumihimo, "full", &self.options.queue, &args, at_most)]
    }

    /// fio uses direct reads, so it is compared with Kumihimo's direct reads only.
    fn files(&self) -> Vec<Contender> {
        let parts = ["part=cached", "part=uncached", "part=tree"];
        let both = |part| {
            join([self.ours("full", &[part]), self.rival(Runtime::Std, &[part], usize::MAX)])
        };
        join([join(parts.map(both)), self.rival(Runtime::Std, &["part=fio"], usize::MAX)])
    }

    /// One cell for each kind. Without `full`, cells without new information are omitted: Go, Tokio
    /// in plain calls and kernel threads have no annotation, and a contender without hand-offs is
    /// affected by all kinds alike.
    fn stall(&self) -> Vec<Cell> {
        let full = self.options.full;
        let cell = |kind: &str| {
            let arg = format!("stall={kind}");
            let arg = arg.as_str();
            let ours = SOURCES.map(|source| self.sourced(source, &[arg], usize::MAX));
            let only = |kinds: &[&str], who: Vec<Contender>| {
                if full || kinds.contains(&kind) { who } else { Vec::new() }
            };
            let tokio = |args: &[&str]| self.rival(Runtime::Tokio, args, usize::MAX);
            let contenders = join([
                join(ours),
                only(&["none", "read", "blocking"], self.sourced("off", &[arg], 2)),
                only(
                    &["none", "fault", "flock", "read", "fuse"],
                    self.rival(Runtime::Go, &[arg], usize::MAX),
                ),
                only(&["none", "read", "fault"], tokio(&[arg])),
                only(&["none", "fault", "flock", "read", "fuse"], tokio(&[arg, "calls=blocking"])),
                only(
                    &["none", "fault", "flock", "read", "fuse"],
                    self.rival(Runtime::Std, &[arg], usize::MAX),
                ),
            ]);
            Cell { vps: STALL_VPS, contenders }
        };
        let loops = LOOPS.map(|priority| Cell { vps: STALL_VPS, contenders: self.loops(priority) });
        ["none"].into_iter().chain(STALLS).map(cell).chain(loops).collect()
    }

    /// Without preemption (`off`), a loop would occupy its VP to the end. Goroutines and Tokio's
    /// tasks have no priorities. Kernel threads have a nice value; Tokio's plain kernel threads
    /// (`calls=blocking`) are equal.
    fn loops(&self, priority: &str) -> Vec<Contender> {
        let args = ["stall=loop", &format!("priority={priority}")];
        let equal = |who: Vec<Contender>| if priority == "equal" { who } else { Vec::new() };
        join([
            join(SOURCES.map(|source| self.sourced(source, &args, usize::MAX))),
            equal(self.rival(Runtime::Go, &args, usize::MAX)),
            equal(self.rival(
                Runtime::Tokio,
                &[&args[..], &["calls=blocking"]].concat(),
                usize::MAX,
            )),
            self.rival(Runtime::Std, &args, usize::MAX),
        ])
    }

    /// Go preempts after 10 ms, whatever quantum is requested; kernel threads are preempted by the
    /// kernel.
    fn preempt(&self, quantum: &str) -> Vec<Contender> {
        let rivals = if quantum == "quantum=10ms" {
            join([
                self.rival(Runtime::Go, &[quantum], usize::MAX),
                self.rival(Runtime::Std, &[], usize::MAX),
            ])
        } else {
            Vec::new()
        };
        join([self.ours("full", &[quantum]), rivals])
    }

    /// One cell for each load and number of VPs, so that values whose ratio is taken are measured
    /// together. The simulated parts need a second core.
    fn resources(&self) -> Vec<Cell> {
        let over = if self.options.full { &OVER_COMMITTED[..] } else { &[] };
        let mut vps = self.options.vps.clone();
        vps.extend(over.iter().filter(|&over| !self.options.vps.contains(over)));
        let cell = |load: &'static str, vps: usize| {
            let load = format!("load={load}");
            // A process takes a second for each run, a microprocess some hundredths.
            let joins = load == "load=join";
            let runs = if joins { 2 } else { usize::MAX };
            let ours = LOCKINGS.map(|locking| {
                let args = [load.as_str(), &format!("locking={locking}")];
                vec![self.make(Runtime::Kumihimo, "full", &self.options.queue, &args, runs)]
            });
            // A process of the kernel that joins does nothing else: that is `create`.
            let linux = !joins && self.options.vps.contains(&vps);
            let linux = if linux { self.rival(Runtime::Linux, &[&load], 3) } else { Vec::new() };
            Cell { vps, contenders: join([join(ours), linux]) }
        };
        let parts = Cell { vps: 2, contenders: self.ours("full", &["load=parts", "locking=kind"]) };
        LOADS
            .iter()
            .flat_map(|load| vps.iter().map(move |&vps| (load, vps)))
            .map(|(load, vps)| cell(load, vps))
            .chain([parts])
            .collect()
    }

    /// Without a source, a blocked microprocess would occupy its VP indefinitely.
    fn kernel_threads(&self) -> Vec<Cell> {
        let cell = |blocked: &str| {
            let ours =
                |source| self.sourced(source, &[blocked], if self.options.full { 3 } else { 1 });
            let off = if blocked == "blocked=0" { ours("off") } else { Vec::new() };
            Cell { vps: 2, contenders: join([join(SOURCES.map(ours)), off]) }
        };
        ["blocked=0", "blocked=10", "blocked=1000"].map(cell).into()
    }

    fn sieve_2000(&self) -> Vec<Contender> {
        let part = &["part=primes2000"];
        let go = self.rival(Runtime::Go, part, usize::MAX);
        let tokio = self.rival(Runtime::Tokio, part, usize::MAX);
        // Ten seconds for each run.
        let threads =
            if self.options.full { self.rival(Runtime::Std, part, 1) } else { Vec::new() };
        join([self.full_or_both(part), go, tokio, threads, self.more(part, usize::MAX)])
    }

    fn skynet(&self) -> Vec<Contender> {
        let parent = |variant| {
            self.make(Runtime::Kumihimo, variant, &self.options.queue, &["order=parent"], 2)
        };
        join([
            self.both(&["order=child"]),
            if self.options.full { vec![parent("full"), parent("lean")] } else { Vec::new() },
            self.rival(Runtime::Go, &[], usize::MAX),
            self.rival(Runtime::Tokio, &[], usize::MAX),
            // Half a minute and gigabytes for each run of Boost.
            self.more(&[], 1),
        ])
    }

    /// Memory does not depend on the number of VPs: the last number of the list is used, and two
    /// runs are enough.
    fn parked(&self) -> Vec<Cell> {
        let Some(&vps) = self.options.vps.last() else { return Vec::new() };
        let ours = |variant: &'static str, args: &[&str]| {
            vec![self.make(Runtime::Kumihimo, variant, &self.options.queue, args, 2)]
        };
        let cell = |contenders| Cell { vps, contenders };
        let rivals = |args: &[&str]| join(Runtime::RIVALS.map(|r| self.rival(r, args, 2)));
        let mut cells = vec![
            cell(join([
                ours("full", &["stack=min", "count=100000"]),
                ours("full", &["stack=default", "count=100000"]),
                ours("lean", &["stack=min", "count=1000000"]),
                rivals(&[]),
                self.more(&[], 2),
            ])),
            cell(join([
                ours("full", &["part=parked_used", "stack=min", "count=100000"]),
                ours("lean", &["part=parked_used", "stack=min", "count=100000"]),
                rivals(&["part=parked_used"]),
            ])),
        ];
        if self.options.full {
            let million = |runtime| self.rival(runtime, &["count=1000000"], 1);
            cells.push(cell(join([
                ours("full", &["stack=min", "count=1000000"]),
                ours("lean", &["stack=default", "count=1000000"]),
                million(Runtime::Go),
                million(Runtime::Tokio),
            ])));
        }
        cells
    }

    fn mutex(&self) -> Vec<Contender> {
        let tokio = |lock| self.rival(Runtime::Tokio, &[lock], usize::MAX);
        join([
            self.full_or_both(&[]),
            self.rival(Runtime::Go, &[], usize::MAX),
            tokio("lock=tokio"),
            tokio("lock=std"),
            self.rival(Runtime::Std, &[], usize::MAX),
            self.more(&[], usize::MAX),
        ])
    }

    /// Capacity rules are varied for `ring`, to which they belong.
    fn spread(&self) -> Vec<Contender> {
        let rules = ["fixed1", "fixed8", "fixed32", "fixed128", "slack0", "slack4", "slack16"];
        let swept = |rule| {
            self.make(Runtime::Kumihimo, "full", "ring", &[&format!("capacity={rule}")], usize::MAX)
        };
        let sweep = if self.options.full { rules.map(swept).into() } else { Vec::new() };
        join([self.designs("full", &[]), sweep])
    }

    fn queues(&self) -> Vec<Contender> {
        let works = ["yield", "null-fork", "sieve", "skynet", "mutex", "message", "hash"];
        join(works.map(|work| self.designs("full", &[&format!("work={work}")])))
    }

    /// Each wake-up with equal priorities waits for a turn of a thousand others. Only `full`
    /// collects enough of them for a good p999, and runs all designs.
    fn latency(&self) -> Vec<Contender> {
        let wakes = if self.options.full { "wakes=1000" } else { "wakes=150" };
        let ours = |priority| {
            let args = [priority, wakes];
            if self.options.full { self.designs("full", &args) } else { self.ours("full", &args) }
        };
        join([ours("priority=equal"), ours("priority=high"), self.rivals(&[wakes], 2)])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn options(full: bool) -> Options {
        Options { vps: vec![1, 2], rivals: true, full, runs: 5, queue: "ring".into(), seed: 1 }
    }

    #[test]
    fn every_benchmark_has_cells() {
        let apart = [
            "echo",
            "http",
            "kv",
            "priority-io",
            "connections",
            "control",
            "observe",
            "report",
            "hostile",
            "run",
        ];
        for bench in NAMES.iter().filter(|bench| !apart.contains(bench)) {
            for full in [false, true] {
                let cells = cells(bench, &options(full));
                assert!(
                    !cells.is_empty() && cells.iter().all(|c| !c.contenders.is_empty()),
                    "{bench}"
                );
            }
        }
        let servers =
            [echo_servers, http_servers, kv_servers, priority_servers, connection_servers];
        assert_eq!(servers.map(|of| of(&options(true)).len()), [10, 7, 3, 2, 5]);
        let alone = Options { rivals: false, ..options(false) };
        assert_eq!(servers.map(|of| of(&alone).len()), [4, 1, 1, 2, 1]);
    }

    #[test]
    fn quick_benchmarks_are_some_of_all() {
        assert!(QUICK.iter().all(|quick| NAMES.contains(quick)));
    }

    #[test]
    fn contenders_of_a_benchmark_are_unique() {
        for bench in NAMES {
            let mut seen = BTreeSet::new();
            for cell in cells(bench, &options(true)) {
                for c in cell.contenders {
                    let key = (cell.vps, c.runtime, c.variant, c.queue.clone(), c.args.clone());
                    assert!(seen.insert(key), "{bench}: {c:?} at {} VPs", cell.vps);
                }
            }
        }
    }

    #[test]
    fn loads_of_the_paper_are_planned_with_every_locking_design() {
        let who = |full, vps, runtime| {
            let all = cells("resources", &options(full));
            all.iter()
                .filter(|c| c.vps == vps)
                .flat_map(|c| &c.contenders)
                .filter(|c| c.runtime == runtime)
                .count()
        };
        // Four loads under three designs; the parts are measured with two.
        assert_eq!([1, 2, 4].map(|vps| who(false, vps, Runtime::Kumihimo)), [12, 13, 0]);
        assert_eq!([1, 2, 8].map(|vps| who(true, vps, Runtime::Kumihimo)), [12, 13, 12]);
        assert_eq!([1, 2, 8].map(|vps| who(true, vps, Runtime::Linux)), [3, 3, 0]);
    }

    #[test]
    fn without_rivals_only_kumihimo_runs() {
        let alone = Options { rivals: false, ..options(true) };
        for bench in NAMES {
            for cell in cells(bench, &alone) {
                assert!(cell.contenders.iter().all(|c| c.runtime == Runtime::Kumihimo), "{bench}");
            }
        }
    }
}
