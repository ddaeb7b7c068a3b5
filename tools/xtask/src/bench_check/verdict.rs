//! Verdict on one row: whether its interval proves a loss, excludes one, or proves nothing.

#[cfg(test)]
mod tests;

use super::statistics::Interval;

/// Pairs that every row gets.
pub const PAIRS: usize = 15;
/// Pairs that a row gets at most, after two doublings of [`PAIRS`].
pub const MOST_PAIRS: usize = 60;
/// Width of the widest interval that decides a row.
pub const WIDTH: f64 = 0.06;
/// Change that a whole interval must exceed to count.
const CHANGE: f64 = 0.03;
/// Change of the median that fails a row whose interval stays too wide.
const DRIFT: f64 = 0.10;

/// Which way of a row's metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Times, bytes.
    Lower,
    /// Rates.
    Higher,
}

/// What the pairs of a row prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The interval is narrow, and no loss of more than 3 % is proven.
    Same,
    /// The whole interval lies more than 3 % on the better side.
    Improved,
    /// The whole interval lies more than 3 % on the worse side.
    Regressed,
    /// The interval is too wide; the median lies within 10 %.
    Undecided,
    /// The interval is too wide, and the median lies more than 10 % on the worse side.
    Drifted,
}

impl Verdict {
    /// Whether the check fails.
    pub fn fails(self) -> bool {
        matches!(self, Verdict::Regressed | Verdict::Drifted)
    }

    /// Whether more pairs could not change the verdict much.
    pub fn is_decided(self) -> bool {
        matches!(self, Verdict::Same | Verdict::Improved | Verdict::Regressed)
    }

    /// One word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Same => "same",
            Verdict::Improved => "improved",
            Verdict::Regressed => "REGRESSED",
            Verdict::Undecided => "undecided",
            Verdict::Drifted => "DRIFTED",
        }
    }
}

/// Judges the interval of new/base ratios over so many pairs. Fewer than [`PAIRS`] decide nothing.
pub fn judge(better: Better, interval: &Interval, pairs: usize) -> Verdict {
    // Distances on the worse side: positive is worse, for times and rates alike.
    let (best, median, worst) = match better {
        Better::Lower => (interval.low - 1.0, interval.median - 1.0, interval.high - 1.0),
        Better::Higher => (1.0 - interval.high, 1.0 - interval.median, 1.0 - interval.low),
    };
    match () {
        () if pairs < PAIRS => Verdict::Undecided,
        () if best > CHANGE => Verdict::Regressed,
        () if worst < -CHANGE => Verdict::Improved,
        () if interval.width() <= WIDTH => Verdict::Same,
        () if median > DRIFT => Verdict::Drifted,
        () => Verdict::Undecided,
    }
}

/// The number of pairs that a row should have, which has `pairs` (a full stage) and this verdict.
/// Doubles until the row is decided or has [`MOST_PAIRS`].
pub fn next_stage(verdict: Verdict, pairs: usize) -> usize {
    if verdict.is_decided() { pairs } else { (2 * pairs).min(MOST_PAIRS.max(pairs)) }
}

/// Of all twenty rows at least so many must be decided. With named rows the rule does not apply.
pub const LEAST_DECIDED: usize = 12;
