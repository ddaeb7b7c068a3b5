//! Targets of calls between processes, and of priorities across processes.

use super::Goal::{AtLeast, AtMost};
use super::{Figure, Goal, Pick, alone, full, of, ratio};

type Keys = &'static [(&'static str, &'static str)];

/// Keys of one cell of `rpc`, with the placement and the check.
macro_rules! keys {
    ($callers:literal, $bytes:literal, $cores:literal, $placement:literal) => {
        &[
            ("callers", $callers),
            ("bytes", $bytes),
            ("cores", $cores),
            ("placement", $placement),
            ("check", "whole"),
        ]
    };
}

/// The number of cores is in the row twice: as a key of this benchmark, and as the number of VPs.
const fn on(cores: &'static [usize], figure: Figure) -> Figure {
    Figure { at: cores, ..figure }
}

const fn rpc(
    metric: &'static str,
    ours: Keys,
    runtime: &'static str,
    other: Keys,
    goal: Goal,
) -> Figure {
    ratio(
        "rpc",
        Pick { keys: ours, ..full(metric) },
        Pick { keys: other, ..of(runtime, metric) },
        goal,
    )
}

/// Kumihimo's rate relative to all rates of another transport.
macro_rules! more_calls {
    ($callers:literal, $bytes:literal, $cores:literal, $at:literal, $runtime:literal, $least:literal) => {
        on(
            &[$at],
            rpc(
                "calls",
                keys!($callers, $bytes, $cores, "adaptive"),
                $runtime,
                keys!($callers, $bytes, $cores, "scheduled"),
                AtLeast($least),
            ),
        )
    };
}

const HANDOFF: Keys = keys!("1", "64", "1", "handoff");
const ALONE: Keys = keys!("1", "64", "1", "scheduled");
const SPIN: Keys = keys!("1", "64", "2", "spin");
const BEST: Keys = keys!("1", "64", "2", "best");
const SMALL: Keys = &[("bytes", "4096"), ("check", "head"), ("by", "region")];
const LARGE: Keys = &[("bytes", "1048576"), ("check", "head"), ("by", "region")];

macro_rules! priority {
    ($burst:literal, $session:literal) => {
        &[("burst", $burst), ("session", $session), ("by", "thread")]
    };
}

const SHORT: Keys = priority!("100us", "same");
const LONG: Keys = priority!("5ms", "same");
const LONG_SEPARATE: Keys = priority!("5ms", "separate");

const fn priority(metric: &'static str, keys: Keys, runtime: &'static str, most: f64) -> Figure {
    ratio(
        "priority",
        Pick { keys, ..full(metric) },
        Pick { keys, ..of(runtime, metric) },
        AtMost(most),
    )
}

/// Service time of a call in `inversion`; and the time allowed for everything else: until the
/// server gets the core, and until the caller gets it back.
const SERVICE_US: f64 = 500.0;
const REST_US: f64 = 500.0;

pub const FIGURES: &[Figure] = &[
    on(&[1], rpc("null_p50", HANDOFF, "futex", ALONE, AtMost(1.3))),
    on(&[1], rpc("null_p50", HANDOFF, "grpc-uds", ALONE, AtMost(0.21))),
    on(&[2], rpc("null_p50", BEST, "grpc-uds", BEST, AtMost(1.0 / 6.3))),
    on(&[2], rpc("null_p50", BEST, "dbus", BEST, AtMost(1.0 / 6.3))),
    on(&[2], rpc("null_p50", SPIN, "futex", SPIN, AtMost(2.0))),
    more_calls!("64", "64", "1", 1, "unix-socket", 20.0),
    more_calls!("64", "64", "2", 2, "unix-socket", 20.0),
    more_calls!("64", "64", "1", 1, "unix-mux", 3.0),
    more_calls!("64", "64", "2", 2, "unix-mux", 3.0),
    more_calls!("64", "64", "1", 1, "unix-mux-states", 3.0),
    more_calls!("64", "64", "2", 2, "unix-mux-states", 3.0),
    more_calls!("1", "64", "1", 1, "unix-socket", 1.0),
    more_calls!("1", "64", "2", 2, "unix-socket", 1.0),
    more_calls!("1", "4096", "1", 1, "unix-socket", 1.0),
    more_calls!("1", "4096", "2", 2, "unix-socket", 1.0),
    more_calls!("1", "1048576", "1", 1, "unix-socket", 1.0),
    more_calls!("1", "1048576", "2", 2, "unix-socket", 1.0),
    more_calls!("16", "64", "1", 1, "unix-socket", 1.0),
    more_calls!("16", "64", "2", 2, "unix-socket", 1.0),
    more_calls!("16", "4096", "1", 1, "unix-socket", 1.0),
    more_calls!("16", "4096", "2", 2, "unix-socket", 1.0),
    more_calls!("16", "1048576", "1", 1, "unix-socket", 1.0),
    more_calls!("16", "1048576", "2", 2, "unix-socket", 1.0),
    more_calls!("64", "4096", "1", 1, "unix-socket", 1.0),
    more_calls!("64", "4096", "2", 2, "unix-socket", 1.0),
    more_calls!("64", "1048576", "1", 1, "unix-socket", 1.0),
    more_calls!("64", "1048576", "2", 2, "unix-socket", 1.0),
    on(
        &[1],
        ratio(
            "rpc",
            Pick { keys: LARGE, ..full("null_p50") },
            Pick { keys: SMALL, ..full("null_p50") },
            AtMost(1.2),
        ),
    ),
    priority("ready_p99", SHORT, "linux", 0.1),
    priority("done_p50", LONG, "linux", 0.55),
    priority("done_p50", LONG_SEPARATE, "linux", 0.65),
    priority("ready_p99", SHORT, "nice", 1.0),
    priority("done_p50", LONG, "nice", 1.0),
    alone(
        "inversion",
        Pick { keys: &[("inherit", "on")], ..full("p99") },
        AtMost(SERVICE_US + REST_US),
    ),
];
