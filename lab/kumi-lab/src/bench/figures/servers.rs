//! Targets of the file server in five organisations.

use super::Goal::{AtLeast, AtMost};
use super::{Figure, Goal, Pick, alone, full, of, ratio};

type Keys = &'static [(&'static str, &'static str)];

/// An organisation under P1's load, with default threads.
macro_rules! paper {
    ($organisation:literal, $threads:literal) => {
        &[("load", "paper"), ("organisation", $organisation), ("threads", $threads)]
    };
}

const SEQUENTIAL: Keys = paper!("sequential", "1");
const USER_THREADS: Keys = paper!("user-threads", "pool");
const MICROPROCESSES: Keys = paper!("microprocesses", "pool");
const BEST_OTHER: Keys = paper!("best-other", "-");

const fn on(cores: &'static [usize], figure: Figure) -> Figure {
    Figure { at: cores, ..figure }
}

/// Kumihimo's time relative to another organisation.
const fn paper(metric: &'static str, other: Keys, most: f64) -> Figure {
    ratio(
        "servers",
        Pick { keys: MICROPROCESSES, ..full(metric) },
        Pick { keys: other, ..full(metric) },
        AtMost(most),
    )
}

/// Keys of Kumihimo's rows under the modern load, and of others' rows.
macro_rules! ours {
    ($organisation:literal, $store:literal, $clients:literal) => {
        &[
            ("load", "modern"),
            ("organisation", $organisation),
            ("threads", "pool"),
            ("store", $store),
            ("clients", $clients),
        ]
    };
}

macro_rules! theirs {
    ($clients:literal) => {
        &[("load", "modern"), ("clients", $clients)]
    };
}

const BEST_OF_ONE: Keys = &[("load", "modern"), ("threads", "best"), ("clients", "1")];
const BEST_OF_MANY: Keys = &[("load", "modern"), ("threads", "best"), ("clients", "16")];
const ONE: Keys = ours!("microprocesses", "ext2", "1");
const ONE_BY_KERNEL_THREADS: Keys = ours!("kernel-threads", "ext2", "1");
const MANY: Keys = ours!("microprocesses", "ext2", "16");
const MANY_OF_HOST: Keys = ours!("microprocesses", "host", "16");

/// Kumihimo's rate relative to a rival, on two cores.
const fn rate(
    metric: &'static str,
    keys: Keys,
    runtime: &'static str,
    other: Keys,
    least: f64,
) -> Figure {
    let ours = Pick { keys, ..full(metric) };
    on(&[2], ratio("servers", ours, Pick { keys: other, ..of(runtime, metric) }, AtLeast(least)))
}

const fn many(metric: &'static str, runtime: &'static str, least: f64) -> Figure {
    rate(metric, MANY, runtime, theirs!("16"), least)
}

const fn many_of_host(metric: &'static str, runtime: &'static str, least: f64) -> Figure {
    rate(metric, MANY_OF_HOST, runtime, theirs!("16"), least)
}

/// One client: compared with the floor and with kernel threads.
const fn one(metric: &'static str) -> [Figure; 2] {
    let [ours, theirs] =
        [Pick { keys: ONE, ..full(metric) }, Pick { keys: ONE_BY_KERNEL_THREADS, ..full(metric) }];
    [
        rate(metric, ONE, "floor", BEST_OF_ONE, 0.9),
        on(&[2], ratio("servers", ours, theirs, AtLeast(1.0))),
    ]
}

/// Keys of Kumihimo's rows beside a thousand slow requests.
macro_rules! slow {
    ($blocks:literal) => {
        &[
            ("load", "slow"),
            ("organisation", "microprocesses"),
            ("threads", "pool"),
            ("blocks", $blocks),
        ]
    };
}

const SHORT: Keys = slow!("1");
const LONG: Keys = slow!("8");

const fn slow(metric: &'static str, keys: Keys, goal: Goal) -> Figure {
    on(&[2], alone("servers", Pick { keys, ..full(metric) }, goal))
}

/// Limit that shows boundedness: far below the thousand waiting requests.
const BOUND: f64 = 100.0;

const STAT: [Figure; 2] = one("stat");
const PREAD: [Figure; 2] = one("pread");
const CREATE: [Figure; 2] = one("create");

pub const FIGURES: &[Figure] = &[
    on(
        &[1],
        alone(
            "servers",
            Pick { keys: MICROPROCESSES, ..full("time_ratio_vs_sequential") },
            AtLeast(2.5),
        ),
    ),
    on(&[1], paper("time_both", USER_THREADS, 1.0 / 2.5)),
    on(
        &[2],
        alone(
            "servers",
            Pick { keys: MICROPROCESSES, ..full("time_ratio_vs_sequential") },
            AtLeast(1.3),
        ),
    ),
    on(&[2], paper("time_both", USER_THREADS, 1.0 / 1.3)),
    paper("time_both", BEST_OTHER, 1.0),
    paper("fileread_both", SEQUENTIAL, 1.2),
    rate("stat", MANY, "floor", BEST_OF_MANY, 0.8),
    rate("pread", MANY, "floor", BEST_OF_MANY, 0.8),
    many("stat", "fuse2fs", 1.0),
    many("pread", "fuse2fs", 1.0),
    many("create", "fuse2fs", 1.3),
    many_of_host("stat", "mergerfs", 1.3),
    many_of_host("stat", "bindfs", 1.3),
    many_of_host("pread", "mergerfs", 1.0),
    many_of_host("pread", "bindfs", 1.0),
    STAT[0],
    STAT[1],
    PREAD[0],
    PREAD[1],
    CREATE[0],
    CREATE[1],
    slow("p99_ratio", SHORT, AtMost(1.5)),
    slow("p99_ratio", LONG, AtMost(1.5)),
    slow("kernel_threads", SHORT, AtMost(BOUND)),
    slow("kernel_threads", LONG, AtMost(BOUND)),
];
