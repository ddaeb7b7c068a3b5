//! Targets of `kumi top`, `kumi web` and `kumi profile`: what they cost.

use super::Goal::AtMost;
use super::{Figure, Pick, alone, full};

type Keys = &'static [(&'static str, &'static str)];

/// A target at one VP, where everything of this benchmark is measured.
const fn cost(metric: &'static str, keys: Keys, most: f64) -> Figure {
    Figure { at: &[1], ..alone("observe", Pick { keys, ..full(metric) }, AtMost(most)) }
}

pub const FIGURES: &[Figure] = &[
    cost("top_once", &[("count", "1000")], 0.3),
    cost("top_once", &[("count", "100000")], 0.3),
    cost("top_cpu", &[("count", "1000"), ("of", "watcher")], 1.0),
    cost("top_cpu", &[("count", "1000"), ("of", "watched")], 1.0),
    cost("top_cpu", &[("count", "100000"), ("of", "watcher")], 5.0),
    cost("top_cpu", &[("count", "100000"), ("of", "watched")], 5.0),
    cost("web_page", &[("count", "100000")], 1_048_576.0),
    cost("web_cpu", &[("count", "1000"), ("tabs", "1"), ("of", "watcher")], 1.0),
    cost("web_cpu", &[("count", "1000"), ("tabs", "1"), ("of", "watched")], 2.0),
    cost("web_cpu", &[("count", "100000"), ("tabs", "1"), ("of", "watcher")], 5.0),
    cost("web_cpu", &[("count", "100000"), ("tabs", "1"), ("of", "watched")], 2.0),
    cost("profiled", &[("profile", "cpu"), ("rate", "99"), ("of", "cpu")], 1.02),
    cost("profiled", &[("profile", "off-cpu"), ("rate", "10"), ("of", "cpu")], 1.03),
];
