//! Cells of `unwrapped`.

use kumihimo_bench_unwrapped::Kind;

use super::{Cell, Options, Plan, join};
use crate::bench::contender::{Contender, Runtime, own_cores};

/// Workloads, with the keys that distinguish cells of the same workload.
const WORKS: [&[&str]; 12] = [
    &["work=redis"],
    &["work=http"],
    &["work=pipe"],
    &["work=mix", "every=1"],
    &["work=mix", "every=4"],
    &["work=mix", "every=16"],
    &["work=long", "limit=4096"],
    &["work=long", "limit=none"],
    &["work=full"],
    &["work=mutex"],
    &["work=fault"],
    &["work=levels"],
];

/// Workloads of unmodified crates, with the connections of std, of Kumihimo, and interposed.
const UNMODIFIED: [&[&str]; 3] = [&["work=redis"], &["work=http"], &["work=ureq"]];

/// Kumihimo's own connections below the same crates.
const WRAPPED: &str = "connections=kumihimo";

/// Event sources; the first is the default without a setting.
const SOURCES: [&[&str]; 5] = [
    &["events=default"],
    &["events=bpf", "way=thread"],
    &["events=bpf", "way=switch"],
    &["events=perf"],
    &["events=watch"],
];

/// Number of rounds if every source is compared with std.
pub const RUNS: usize = 9;

/// Returns whether all workloads run completely, under every source, and not only in a reduced
/// form.
pub fn is_whole(options: &Options) -> bool {
    options.rivals || options.full
}

/// Argument of `kumi-lab bench-peer` for a workload.
pub fn peer_of(work: &str) -> Option<&'static str> {
    Kind::from_name(work)?.peer()
}

impl Plan<'_> {
    /// One cell for each workload. std takes part twice, so that the ratio of the two shows the
    /// noise. Where each thread waits for a crate's own sockets, `interposed` takes part, and a
    /// Kumihimo whose connections are below the same crates.
    pub(super) fn unwrapped(&self) -> Vec<Cell> {
        let sources = if is_whole(self.options) { &SOURCES[..] } else { &SOURCES[..1] };
        let cell = |work: &[&str]| {
            let ours = sources.iter().map(|source| self.ours("full", &[work, source].concat()));
            let std = |more: &[&str]| -> Vec<Contender> {
                self.rival(Runtime::Std, &[work, more].concat(), usize::MAX)
            };
            let contenders = join(ours.chain([std(&[]), std(&["control=again"])]));
            Cell { vps: own_cores().len(), contenders }
        };
        let mut cells: Vec<Cell> = WORKS.iter().map(|work| cell(work)).collect();
        for work in UNMODIFIED {
            let more = join([
                self.ours("full", &[work, &[WRAPPED]].concat()),
                self.rival(Runtime::Interposed, work, usize::MAX),
            ]);
            match WORKS.iter().position(|other| *other == work) {
                Some(cell) => cells[cell].contenders.extend(more),
                None => cells.push(Cell {
                    vps: own_cores().len(),
                    contenders: join([more, self.rival(Runtime::Std, work, usize::MAX)]),
                }),
            }
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::super::cells;
    use super::*;

    #[test]
    fn every_source_is_planned_with_two_runs_of_std() {
        let options = |rivals, full| Options {
            vps: vec![1],
            rivals,
            full,
            runs: 1,
            queue: "ring".into(),
            seed: 1,
        };
        let of = |options: &Options| cells("unwrapped", options);
        let counts = [(true, false), (false, true), (false, false)].map(|(rivals, full)| {
            of(&options(rivals, full)).iter().map(|cell| cell.contenders.len()).sum::<usize>()
        });
        assert_eq!(counts, [12 * 7 + 3 * 2 + 1, 12 * 5 + 3, 12 + 3]);
        // Every workload has a cell, and every peer exists.
        let all = of(&options(true, true));
        for kind in Kind::ALL {
            assert!(all.iter().any(|cell| cell.contenders[0].value("work") == Some(kind.name())));
        }
        assert_eq!((peer_of("levels"), peer_of("pipe")), (Some("redis"), None));
    }
}
