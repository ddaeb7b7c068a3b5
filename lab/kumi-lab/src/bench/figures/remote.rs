//! Targets of calls from machine to machine.

use super::Goal::{AtLeast, AtMost};
use super::{Aim, Figure, Goal, Pick, alone, full, of, ratio};

type Keys = &'static [(&'static str, &'static str)];

const ONE: Keys = &[("callers", "1"), ("delay_us", "0")];
const FAR: Keys = &[("callers", "1"), ("delay_us", "500")];
const MANY: Keys = &[("callers", "64"), ("delay_us", "0")];
const IDLE: Keys = &[("part", "idle")];

const fn aiming(figure: Figure, goal: Goal) -> Figure {
    Figure { aim: Some(Aim { of: None, goal }), ..figure }
}

const fn beside_tonic(metric: &'static str, keys: Keys, goal: Goal) -> Figure {
    ratio("remote", Pick { keys, ..full(metric) }, Pick { keys, ..of("tonic", metric) }, goal)
}

const fn idle(metric: &'static str, most: f64) -> Figure {
    alone("remote", Pick { keys: IDLE, ..full(metric) }, AtMost(most))
}

pub const FIGURES: &[Figure] = &[
    aiming(beside_tonic("null_p50", ONE, AtMost(1.9)), AtMost(1.35)),
    aiming(beside_tonic("null_p50", FAR, AtMost(1.2)), AtMost(1.1)),
    aiming(beside_tonic("calls", MANY, AtLeast(0.8)), AtLeast(1.0)),
    aiming(
        ratio(
            "remote",
            Pick { keys: &[("level", "63"), ("load", "level-0")], ..full("null_p99") },
            Pick { keys: &[("level", "63"), ("load", "none")], ..full("null_p99") },
            AtMost(4.0),
        ),
        AtMost(2.0),
    ),
    aiming(idle("cpu", 0.2), AtMost(0.1)),
    aiming(idle("rss", 30e6), AtMost(20e6)),
    aiming(
        alone("remote", Pick { keys: &[("part", "ps")], ..full("ps") }, AtMost(1.0)),
        AtMost(0.5),
    ),
];
