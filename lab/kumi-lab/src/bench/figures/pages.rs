//! Targets of the pages for a browser: size, time until they can be used, memory.

use super::Goal::AtMost;
use super::{Figure, alone, full};

/// A target at one VP, where everything of this benchmark is measured.
const fn report(metric: &'static str, most: f64) -> Figure {
    Figure { at: &[1], ..alone("report", full(metric), AtMost(most)) }
}

pub const FIGURES: &[Figure] =
    &[report("size", 30_000_000.0), report("main_thread", 3.0), report("memory", 1_000_000_000.0)];
