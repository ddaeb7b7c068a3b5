//! Targets of the resource table, and of control from outside.

use super::Goal::AtMost;
use super::{Figure, Pick, alone, full, ratio};

type Keys = &'static [(&'static str, &'static str)];

/// Time on two VPs relative to one.
const fn scale(metric: &'static str, keys: Keys) -> Figure {
    Figure { at: &[2], ..alone("resources", Pick { keys, ..full(metric) }, AtMost(0.62)) }
}

/// Time with `vp` relative to `id`.
const fn no_slower(vp: Keys, id: Keys) -> Figure {
    ratio(
        "resources",
        Pick { keys: vp, ..full("time") },
        Pick { keys: id, ..full("time") },
        AtMost(1.0),
    )
}

macro_rules! no_slower {
    ($load:literal) => {
        no_slower(
            &[("load", $load), ("locking", "vp"), ("iterations", "10000")],
            &[("load", $load), ("locking", "id"), ("iterations", "10000")],
        )
    };
}

const ID: Keys = &[("locking", "id")];
const VP: Keys = &[("locking", "vp")];

/// A target at the number of VPs at which the metric is measured.
const fn control(metric: &'static str, keys: Keys, most: f64, at: &'static [usize]) -> Figure {
    Figure { at, ..alone("control", Pick { keys, ..full(metric) }, AtMost(most)) }
}

pub const FIGURES: &[Figure] = &[
    scale("create_scale", ID),
    scale("create_scale", VP),
    scale("region_scale", ID),
    scale("region_scale", VP),
    scale("message_scale", ID),
    scale("message_scale", VP),
    no_slower!("create"),
    no_slower!("region"),
    no_slower!("message"),
    control("suspend_p99", &[("by", "machine")], 1_000.0, &[2]),
    control("suspend_p99", &[("by", "thread")], 1_000.0, &[2]),
    control("ps_100k", &[("how", "in-turn")], 0.5, &[1]),
    control("ps_100k", &[("how", "at-once")], 0.5, &[1]),
    control("watched", &[("of", "rps")], 1.01, &[1]),
    control("watched", &[("of", "cpu")], 1.01, &[1]),
];
