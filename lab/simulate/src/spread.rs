//! P4's experiment on any number of processors: 256 threads are created at once on one, until all
//! have about as many.
//!
//! Three designs as `crates/queue` and the runtime's loop have them ([`run`]); `paper` has the two
//! of the paper. Threads are alike, so that only their numbers are kept. Each does nothing but
//! yield.

pub mod paper;

mod steps;
#[cfg(test)]
mod tests;
mod world;

pub use kumihimo_queue::Design;
use serde::{Deserialize, Serialize};

use crate::engine::Time;

/// What comes out, for a report.
pub const FINDINGS: &str = "Ours, processors up (they spin, as P4's did): the ring is even some microseconds after the last thread was created (32 us), up to 16 \
    processors; locked and steal never, since an idle one takes its share of the few that are there, and then nobody idles any more. \
    Ours, processors asleep, as in the benchmark: to wake one takes 41 us, and that is most of it. In the ring each wakes the next; under locked the creator wakes all, and \
    what they find is nearly the whole crowd, so that at 2 to 8 processors locked is even sooner: the paper's 4.3 is 0.5 to 1 here. A removal under \
    the lock costs 40 ns today, and one is enough for a whole share. From 16 on locked does not become even. \
    At 32 and 64 the ring comes to rest unevenly, too: a processor that runs a thread already keeps a whole share of what it takes over besides, the slack of one lets it, and little is left \
    for the last. So does the real one (over-committed on two cores, at rest after 2 s): of 16 virtual processors 12 kept 17 and the last had 7, of 32 most kept 9 and the poorest had 1. \
    With a slack of 0 both, and the simulation, become even to one. Moves of the real one on 4, 8, 16, 32 and 64: 381 to 382, 855 to 884, 1,877 to 2,043, 2,922 to 4,049 and \
    4,717 to 8,083 (within a second); simulated 383, 902, 1,919, 3,967 and 8,064. \
    (128: a share is two, and even one with one is at rest.) Not in the model: what a thread's data cost that follow it, the lost races of a thief with an owner that pops (steal is shown better \
    than it is), virtual processors that share a core (so the benchmark's times on two cores cannot be compared).";

/// Threads created at once.
pub const CROWD: usize = 256;
/// The processors of every curve.
pub const PROCESSORS: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];
/// Virtual time after which it is given up: the benchmark's own patience is 1 s, but what has not
/// come by then does not come.
const PATIENCE: Time = 50_000_000;

/// What single steps take, in nanoseconds, as `kumi bench spread --simulate --times FILE` reads it:
/// a JSON object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Where and how they were measured, for the report.
    pub machine: String,
    /// To create a thread and queue it.
    pub create_ns: Time,
    /// A context switch: the one that yields is queued, the next one runs.
    pub switch_ns: Time,
    /// A cache line comes from another processor: what one takes over from another's queue costs
    /// this an item.
    pub line_ns: Time,
    /// To take and release a lock that nobody holds, its line included.
    pub lock_ns: Time,
    /// To look at what another processor shows, most often in vain: its line is still in this
    /// processor's cache.
    pub look_ns: Time,
    /// A turn of an idle processor that spins, its looks at others not included.
    pub spin_ns: Time,
    /// From waking a processor that sleeps until it looks around.
    pub wake_ns: Time,
    /// What a wake-up costs the waker: a system call.
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

    /// The same where every processor is up and spins when the experiment begins: nobody has to be
    /// woken.
    #[must_use]
    pub fn up(self) -> Costs {
        Costs { wake_ns: 0, call_ns: 0, ..self }
    }

    /// Whether they can be.
    ///
    /// # Errors
    /// Says what cannot.
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
        // Time would stand still.
        for (name, ns) in [("switch_ns", self.switch_ns), ("spin_ns", self.spin_ns)] {
            if ns == 0 {
                return Err(format!("{name}: 0"));
            }
        }
        Ok(())
    }
}

/// How a run came out. Times in nanoseconds since the first creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Until no processor had less than three quarters of its share. `None`: that never came.
    pub even: Option<Time>,
    /// Until every processor had something to run.
    pub busy: Option<Time>,
    /// The least that a processor had in the end.
    pub least: usize,
    /// Threads taken over from other processors.
    pub moves: u64,
    /// Times that a lock was taken.
    pub locks: u64,
    /// Times that one was waited for, or a race for a thread was lost.
    pub waits: u64,
    /// Processors woken.
    pub wakes: u64,
}

/// What every processor has to have for it to be even: the criterion of the benchmark `spread`.
#[must_use]
pub fn least_of_even(processors: usize) -> usize {
    CROWD / processors * 3 / 4
}

/// The experiment under a design of ours.
///
/// # Panics
/// If there are no or more than 256 processors, or the costs cannot be.
#[must_use]
pub fn run(design: Design, processors: usize, costs: &Costs, seed: u64) -> Outcome {
    assert!((1..=CROWD).contains(&processors), "{processors} processors");
    costs.check().expect("costs that can be");
    world::World::new(design, processors, costs, seed).run()
}
