//! The matrix of fallbacks: event source x preemption x batching x switches.
//!
//! The rows are a covering array: each compatible pair of values of two of these four columns is in
//! some row (checked by a test). Run queue, guard pages and locking of the resource table vary
//! independently, each value with several others. Designs among them that exist only for comparison
//! are omitted without the feature `lab`. The last rows have no virtual processors, so event source
//! and preemption do not apply.

/// A row: the implementation of each mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub events: Events,
    pub preempt: Preempt,
    pub batch: Batch,
    pub switches: Switches,
    queue: Queue,
    guard: Guard,
    pub locking: Locking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Events {
    Bpf,
    Perf,
    Watch,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preempt {
    Clock,
    Signal,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Batch {
    Adaptive,
    /// A batch starts with three calls, through io_uring.
    FixedRing,
    /// A batch starts with three calls, by plain system calls.
    FixedCalls,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Switches {
    /// Thread-local storage cloned for each microprocess, switched in user mode.
    Clone,
    /// The same, switched by arch_prctl(2).
    ArchPrctl,
    /// Thread-local storage lent by a thread of libc.
    Donor,
    /// None: each microprocess is a kernel thread.
    Kernel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Ring,
    Locked,
    Steal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    Install,
    Mprotect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    Vp,
    Kind,
    Id,
}

/// Designs of the run queue and of locking in a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Designs {
    /// The defaults, in a build without the feature `lab`.
    Default,
    /// All designs, including those for comparison.
    All,
}

type Columns = (Events, Preempt, Batch, Switches, Queue, Guard, Locking);

const fn row(columns: Columns) -> Row {
    let (events, preempt, batch, switches, queue, guard, locking) = columns;
    Row { events, preempt, batch, switches, queue, guard, locking }
}

use Batch::{Adaptive, FixedCalls, FixedRing};
use Events::{Bpf, Perf, Watch};
use Guard::{Install, Mprotect};
use Locking::{Id, Kind, Vp};
use Preempt::{Clock, Signal};
use Queue::{Locked, Ring, Steal};
use Switches::{ArchPrctl, Clone as Cloned, Donor, Kernel};

/// All rows. `ROW=n` counts from 0.
pub const ROWS: [Row; 18] = [
    row((Perf, Signal, Adaptive, Cloned, Steal, Mprotect, Kind)),
    row((Watch, Signal, FixedRing, ArchPrctl, Ring, Mprotect, Vp)),
    row((Bpf, Preempt::Off, Batch::Off, ArchPrctl, Ring, Mprotect, Id)),
    row((Perf, Clock, FixedCalls, Donor, Locked, Install, Kind)),
    row((Watch, Preempt::Off, FixedCalls, Cloned, Locked, Mprotect, Id)),
    row((Events::Off, Preempt::Off, FixedRing, Donor, Steal, Install, Vp)),
    row((Bpf, Clock, FixedRing, Cloned, Ring, Install, Id)),
    row((Bpf, Signal, Adaptive, Donor, Locked, Mprotect, Kind)),
    row((Watch, Clock, Batch::Off, Donor, Steal, Mprotect, Vp)),
    row((Perf, Signal, Batch::Off, Cloned, Locked, Install, Id)),
    row((Events::Off, Preempt::Off, Adaptive, ArchPrctl, Locked, Mprotect, Vp)),
    row((Perf, Preempt::Off, FixedRing, ArchPrctl, Locked, Install, Id)),
    row((Bpf, Signal, FixedCalls, ArchPrctl, Locked, Mprotect, Vp)),
    row((Watch, Clock, Adaptive, ArchPrctl, Steal, Install, Kind)),
    row((Events::Off, Preempt::Off, FixedCalls, Cloned, Steal, Install, Kind)),
    row((Events::Off, Preempt::Off, Batch::Off, ArchPrctl, Ring, Install, Id)),
    row((Events::Off, Preempt::Off, Adaptive, Kernel, Ring, Install, Vp)),
    row((Events::Off, Preempt::Off, FixedRing, Kernel, Ring, Mprotect, Vp)),
];

/// The row for a commit, derived from its hash.
pub fn of_commit(hash: &str) -> usize {
    let digits = hash.get(..8).and_then(|head| u32::from_str_radix(head, 16).ok());
    digits.map_or(0, |number| number as usize % ROWS.len())
}

impl Row {
    /// Environment variables that select this row's mechanisms in a build with these designs.
    ///
    /// The best event source and preemption are the defaults and are not set. A program that drops
    /// its privileges may fall back from a default, but fails if the mechanism is forced.
    pub fn environment(&self, designs: Designs) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let mut lab: Vec<&str> = Vec::new();
        let mut set = |name: &str, value: &str| all.push((name.to_owned(), value.to_owned()));
        if self.switches != Kernel {
            if self.events != Bpf {
                set("KUMI_EVENTS", self.events_name());
            }
            match self.preempt {
                Clock => {}
                Signal => set("KUMI_PREEMPT", "signal"),
                // Without events, preemption is off anyway.
                Preempt::Off if self.events == Events::Off => {}
                Preempt::Off => set("KUMI_PREEMPT", "off"),
            }
        }
        match self.batch {
            Adaptive => {}
            FixedRing => lab.extend(["batch=fixed:3", "uring=on"]),
            FixedCalls => lab.extend(["batch=fixed:3", "uring=off"]),
            Batch::Off => lab.push("batch=off"),
        }
        match self.switches {
            Cloned => {}
            ArchPrctl => lab.push("fsbase=arch_prctl"),
            Donor => lab.push("tls=donor"),
            Kernel => lab.push("tls=kernel"),
        }
        match self.queue {
            Locked if designs == Designs::All => lab.push("queue=locked"),
            Steal if designs == Designs::All => lab.push("queue=steal"),
            Ring | Locked | Steal => {}
        }
        if self.guard == Mprotect {
            lab.push("guard=mprotect");
        }
        match self.locking {
            Kind if designs == Designs::All => lab.push("locking=kind"),
            Id if designs == Designs::All => lab.push("locking=id"),
            Vp | Kind | Id => {}
        }
        if !lab.is_empty() {
            set("KUMI_LAB", &lab.join(","));
        }
        all
    }

    /// The event source, as named in `KUMI_EVENTS` and `kumi doctor`.
    pub fn events_name(&self) -> &'static str {
        match self.events {
            Bpf => "bpf",
            Perf => "perf",
            Watch => "watch",
            Events::Off => "off",
        }
    }

    /// The environment as one line.
    pub fn name(&self, designs: Designs) -> String {
        let all = self.environment(designs);
        let words = all.iter().map(|(name, value)| format!("{name}={value}"));
        words.collect::<Vec<_>>().join(" ")
    }

    /// Returns whether calls are batched even if that does not pay.
    pub fn forces_batches(&self) -> bool {
        matches!(self.batch, FixedRing | FixedCalls)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const EVENTS: [Events; 4] = [Bpf, Perf, Watch, Events::Off];
    const PREEMPT: [Preempt; 3] = [Clock, Signal, Preempt::Off];
    const BATCH: [Batch; 4] = [Adaptive, FixedRing, FixedCalls, Batch::Off];
    const SWITCHES: [Switches; 3] = [Cloned, ArchPrctl, Donor];

    fn missing<A: Copy + Eq + std::hash::Hash, B: Copy + Eq + std::hash::Hash>(
        wanted: impl Iterator<Item = (A, B)>,
        of: impl Fn(&Row) -> (A, B),
    ) -> usize {
        let rows = ROWS.iter().filter(|row| row.switches != Kernel);
        let there: HashSet<(A, B)> = rows.map(of).collect();
        wanted.filter(|pair| !there.contains(pair)).count()
    }

    fn pairs<A: Copy, B: Copy>(a: &'static [A], b: &'static [B]) -> impl Iterator<Item = (A, B)> {
        a.iter().flat_map(move |&a| b.iter().map(move |&b| (a, b)))
    }

    #[test]
    fn each_pair_of_values_is_in_a_row() {
        let works = |&(events, preempt): &(Events, Preempt)| {
            events != Events::Off || preempt == Preempt::Off
        };
        let combined = pairs(&EVENTS, &PREEMPT).filter(works);
        assert_eq!(missing(combined, |row| (row.events, row.preempt)), 0);
        assert_eq!(missing(pairs(&EVENTS, &BATCH), |row| (row.events, row.batch)), 0);
        assert_eq!(missing(pairs(&EVENTS, &SWITCHES), |row| (row.events, row.switches)), 0);
        assert_eq!(missing(pairs(&PREEMPT, &BATCH), |row| (row.preempt, row.batch)), 0);
        assert_eq!(missing(pairs(&PREEMPT, &SWITCHES), |row| (row.preempt, row.switches)), 0);
        assert_eq!(missing(pairs(&BATCH, &SWITCHES), |row| (row.batch, row.switches)), 0);
    }

    #[test]
    fn other_values_are_each_in_three_rows() {
        let count = |has: &dyn Fn(&Row) -> bool| ROWS.iter().filter(|row| has(row)).count();
        for queue in [Ring, Locked, Steal] {
            assert!(count(&|row| row.queue == queue) >= 3, "{queue:?}");
        }
        for guard in [Install, Mprotect] {
            assert!(count(&|row| row.guard == guard) >= 3, "{guard:?}");
        }
        for locking in [Vp, Kind, Id] {
            assert!(count(&|row| row.locking == locking) >= 3, "{locking:?}");
        }
    }

    #[test]
    fn commit_chooses_a_row() {
        assert_eq!(of_commit("00000013ff"), 1);
        assert_eq!(of_commit("ffffffff00"), 0xffff_ffff_usize % ROWS.len());
        // Outside of a repository: the first row.
        assert_eq!(of_commit(""), 0);
    }

    #[test]
    fn row_is_named_by_its_environment() {
        assert_eq!(ROWS[16].name(Designs::All), "KUMI_LAB=tls=kernel");
        let named = "KUMI_EVENTS=perf \
                     KUMI_LAB=batch=fixed:3,uring=off,tls=donor,queue=locked,locking=kind";
        assert_eq!(ROWS[3].name(Designs::All), named);
        let product = named.replace(",queue=locked,locking=kind", "");
        assert_eq!(ROWS[3].name(Designs::Default), product);
    }
}
