//! Cells of `servers`: a file server in five organisations, and other file servers.

use super::{Cell, Plan, join};
use crate::bench::contender::{Contender, Runtime};

/// The three organisations of P1, and two that it did not implement.
pub const ORGANISATIONS: [&str; 5] =
    ["sequential", "user-threads", "processes", "kernel-threads", "microprocesses"];

/// Assignments of requests to threads; the first is the default.
const THREADS: [&str; 4] = ["pool", "3", "per-request", "per-file"];

/// Numbers of readers of the floor; the fastest counts for each figure.
const FLOOR_THREADS: [&str; 3] = ["1", "2", "4"];

/// Number of runs of P1's loads with `--full`, as in the paper; other loads get fewer.
pub const PAPER_RUNS: usize = 20;
const OTHER_RUNS: usize = 5;
const GATE_RUNS: usize = 5;

/// Number of cores at which rivals are measured.
const RIVALS_AT: usize = 2;

fn has_threads(organisation: &str) -> bool {
    !matches!(organisation, "sequential" | "processes")
}

impl Plan<'_> {
    /// Without `full`, the cells of the targets: the organisations under P1's first load; Kumihimo
    /// on two cores beside the rivals; and slow requests.
    pub(super) fn servers(&self) -> Vec<Cell> {
        let full = self.options.full;
        let mut cells = Vec::new();
        for &cores in &self.options.vps {
            let cell = |contenders| Cell { vps: cores, contenders };
            cells.push(cell(join(
                ORGANISATIONS.map(|o| self.organised("paper", o, "ext2", full, usize::MAX)),
            )));
            cells.push(cell(join(
                ORGANISATIONS.map(|o| self.organised("gate", o, "ext2", false, GATE_RUNS)),
            )));
            if full {
                cells.push(cell(join(
                    ORGANISATIONS.map(|o| self.organised("commands", o, "ext2", false, usize::MAX)),
                )));
            }
            if full || cores == RIVALS_AT {
                cells.push(cell(self.modern()));
                cells.push(cell(self.slow()));
            }
        }
        cells
    }

    fn served(
        &self,
        load: &str,
        organisation: &str,
        threads: &str,
        store: &str,
        at_most: usize,
    ) -> Contender {
        let args = [
            format!("load={load}"),
            format!("organisation={organisation}"),
            format!("threads={threads}"),
            format!("store={store}"),
        ];
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        self.make(Runtime::Kumihimo, "full", &self.options.queue, &args, at_most)
    }

    /// One organisation, with each assignment of threads if requested.
    fn organised(
        &self,
        load: &str,
        organisation: &str,
        store: &str,
        each: bool,
        at_most: usize,
    ) -> Vec<Contender> {
        let threads = match (has_threads(organisation), each) {
            (false, _) => &["1"][..],
            (true, false) => &THREADS[..1],
            (true, true) => &THREADS[..],
        };
        threads
            .iter()
            .map(|threads| self.served(load, organisation, threads, store, at_most))
            .collect()
    }

    fn other(&self, server: &str, threads: &str, store: &str) -> Vec<Contender> {
        let args = [
            "load=modern".to_owned(),
            format!("server={server}"),
            format!("threads={threads}"),
            format!("store={store}"),
        ];
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        self.rival(Runtime::Files, &args, self.other_runs())
    }

    fn other_runs(&self) -> usize {
        if self.options.full { OTHER_RUNS } else { usize::MAX }
    }

    fn modern(&self) -> Vec<Contender> {
        let runs = self.other_runs();
        let ours = |organisation: &str, store: &str| {
            self.organised("modern", organisation, store, false, runs)
        };
        let ours = match self.options.full {
            true => join(["ext2", "host"].map(|store| join(ORGANISATIONS.map(|o| ours(o, store))))),
            false => join([
                ours("microprocesses", "ext2"),
                ours("kernel-threads", "ext2"),
                ours("microprocesses", "host"),
            ]),
        };
        join([
            ours,
            join(FLOOR_THREADS.map(|threads| self.other("memory", threads, "memory"))),
            self.other("memfs_ll", "own", "memory"),
            self.other("fuse2fs", "own", "ext2"),
            self.other("bindfs", "own", "host"),
            self.other("mergerfs", "own", "host"),
            self.other("kernel", "own", "ext2"),
        ])
    }

    /// Contenders that serve one request at a time are omitted: a thousand slow requests would take
    /// them most of a minute.
    fn slow(&self) -> Vec<Contender> {
        let of = |organisation, threads| {
            vec![self.served("slow", organisation, threads, "ext2", self.other_runs())]
        };
        let rest = if self.options.full {
            join([
                of("kernel-threads", "pool"),
                of("kernel-threads", "per-request"),
                of("microprocesses", "per-request"),
            ])
        } else {
            Vec::new()
        };
        join([of("microprocesses", "pool"), rest])
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Options, cells};
    use super::*;

    fn contenders(full: bool, rivals: bool) -> Vec<Contender> {
        let options =
            Options { vps: vec![1, 2], rivals, full, runs: 1, queue: "ring".into(), seed: 1 };
        cells("servers", &options).into_iter().flat_map(|cell| cell.contenders).collect()
    }

    #[test]
    fn every_organisation_is_planned_with_every_allotment_of_threads() {
        let on = |full, load: &str| {
            contenders(full, true).iter().filter(|c| c.value("load") == Some(load)).count()
        };
        assert_eq!([on(false, "paper"), on(true, "paper")], [2 * 5, 2 * (2 + 3 * 4)]);
        assert_eq!([on(false, "commands"), on(true, "commands")], [0, 2 * 5]);
        assert_eq!([on(false, "modern"), on(true, "modern")], [3 + 8, 2 * (2 * 5 + 8)]);
    }

    #[test]
    fn every_row_names_every_key() {
        for contender in contenders(true, true) {
            for key in ["load", "threads", "store"] {
                assert!(contender.value(key).is_some(), "{key}: {contender:?}");
            }
            assert_ne!(
                contender.value("organisation").is_some(),
                contender.value("server").is_some()
            );
        }
    }
}
