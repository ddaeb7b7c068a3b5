//! P4's experiment on any number of processors: 256 threads are created at once on one processor,
//! until all processors have about the same number.
//!
//! Three designs as implemented in `crates/queue` and in the runtime's loop ([`run`]); `paper` has
//! the two designs of the paper. All threads are alike and only yield, so the model keeps only
//! their numbers.

pub mod paper;

mod steps;
#[cfg(test)]
mod tests;
mod world;

pub use kumihimo_queue::Design;
use serde::{Deserialize, Serialize};

use crate::engine::Time;

/// Results, as a text for reports.
pub const FINDINGS: &str = "Costs of this implementation, with awake processors (spinning, as in P4): the ring \
    is even a few microseconds after the last creation (32 us), for up to 16 processors. The designs locked and \
    steal never become even: an idle processor takes its share of the few threads present, and afterwards no \
    processor is idle. With sleeping processors, as in the benchmark, most of the time is the wake-up of 41 us. In \
    the ring, each processor wakes the next one. In the design locked, the creator wakes all processors, and they \
    find nearly all threads: with 2 to 8 processors, locked is even earlier than the ring, and the ratio, 4.3 in the \
    paper, is 0.5 to 1 here. A removal under the lock costs 40 ns, and one removal moves a whole share. With 16 and \
    more processors, locked does not become even. With 32 and 64 processors, the ring also comes to rest unevenly: a \
    processor that already runs a thread keeps a whole share of the threads that it takes over in addition, which \
    the slack of one allows, and few threads remain for the last processor. The real ring does the same \
    (over-committed on two cores, at rest after 2 s): of 16 virtual processors, 12 kept 17 threads and the last one \
    had 7; of 32, most kept 9 and the lowest number was 1. With a slack of 0, both the real ring and the simulation \
    become even within one thread. Moves of the real ring on 4, 8, 16, 32 and 64 virtual processors: 381 to 382, 855 \
    to 884, 1,877 to 2,043, 2,922 to 4,049 and 4,717 to 8,083 (within a second); simulated: 383, 902, 1,919, 3,967 \
    and 8,064. (With 128, a share is two threads, and a processor with one thread is also at rest.) Not in the \
    model: the cost of moving a thread's data, races that a thief loses against the owner of a queue (so the \
    simulated steal is faster than the real one), and virtual processors that share a core (so the benchmark's times \
    on two cores cannot be compared).";

/// Number of threads created at once.
pub const CROWD: usize = 256;
/// Numbers of processors for every curve.
pub const PROCESSORS: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];
/// Virtual time after which a run ends. The benchmark's own limit is 1 s, but a distribution that
/// is not even by this time never becomes even.
const PATIENCE: Time = 50_000_000;

/// Times of single steps in nanoseconds, as `kumi bench spread --simulate --times FILE` reads them:
/// a JSON object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Machine and method of the measurement, for the report.
    pub machine: String,
    /// Time to create a thread and queue it.
    pub create_ns: Time,
    /// Time of a context switch: the yielding thread is queued, and the next one runs.
    pub switch_ns: Time,
    /// Time to fetch a cache line from another processor: the cost of each item taken from another
    /// processor's queue.
    pub line_ns: Time,
    /// Time to acquire and release a free lock, including its cache line.
    pub lock_ns: Time,
    /// Time to read what another processor publishes. In most cases nothing has changed, and the
    /// line is still in this processor's cache.
    pub look_ns: Time,
    /// Time of a round of an idle spinning processor, without reading other processors.
    pub spin_ns: Time,
    /// Time from waking a sleeping processor until it looks for work.
    pub wake_ns: Time,
    /// Time that a wake-up costs the waking processor: a system call.
    pub call_ns: Time,
}

impl Costs {
    /// The machine of the README's figures.
    #[must_use]
    pub fn today() -> Costs {
        Costs {
            machine: "AMD EPYC, 2 virtual cores: create, switch from lab/results/all (null-fork, yield); wake from docs/src/decisions/005; line by ping-pong \
                      between the cores; call is a write to an eventfd; lock, look and spin are sums of what they consist of"
                .to_owned(),
            create_ns: 125,
            switch_ns: 27,
            line_ns: 36,
            lock_ns: 40,
            look_ns: 2,
            spin_ns: 430,
            wake_ns: 40_000,
            call_ns: 1_000,
        }
    }

    /// The same machine with all processors spinning when the experiment begins, so that no
    /// wake-ups are needed.
    #[must_use]
    pub fn up(self) -> Costs {
        Costs { wake_ns: 0, call_ns: 0, ..self }
    }

    /// Checks that the times are possible.
    ///
    /// # Errors
    /// Description of the first impossible value.
    pub fn check(&self) -> Result<(), String> {
        const MOST: Time = 1_000_000_000;
        let all = [
            ("create_ns", self.create_ns),
            ("switch_ns", self.switch_ns),
            ("line_ns", self.line_ns),
            ("lock_ns", self.lock_ns),
            ("look_ns", self.look_ns),
            ("spin_ns", self.spin_ns),
            ("wake_ns", self.wake_ns),
            ("call_ns", self.call_ns),
        ];
        for (name, ns) in all {
            if ns > MOST {
                return Err(format!("{name}: {ns} is more than a second"));
            }
        }
        // With a time of 0, virtual time would not advance.
        for (name, ns) in [("switch_ns", self.switch_ns), ("spin_ns", self.spin_ns)] {
            if ns == 0 {
                return Err(format!("{name}: 0"));
            }
        }
        Ok(())
    }
}

/// Result of a run. Times are in nanoseconds since the first creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Time until every processor had at least three quarters of its share. `None` if that never
    /// happened.
    pub even: Option<Time>,
    /// Time until every processor had a thread to run.
    pub busy: Option<Time>,
    /// Minimum number of threads of a processor at the end.
    pub least: usize,
    /// Number of threads taken over from other processors.
    pub moves: u64,
    /// Number of lock acquisitions.
    pub locks: u64,
    /// Number of waits for a lock and of lost races for a thread.
    pub waits: u64,
    /// Number of wake-ups of processors.
    pub wakes: u64,
}

/// Minimum number of threads of each processor for an even distribution: the criterion of the
/// benchmark `spread`.
#[must_use]
pub fn least_of_even(processors: usize) -> usize {
    CROWD / processors * 3 / 4
}

/// Runs the experiment under a design of the runtime.
///
/// # Panics
/// If there are no or more than 256 processors, or the costs are impossible.
#[must_use]
pub fn run(design: Design, processors: usize, costs: &Costs, seed: u64) -> Outcome {
    assert!((1..=CROWD).contains(&processors), "{processors} processors");
    costs.check().expect("costs that can be");
    world::World::new(design, processors, costs, seed).run()
}
