//! Verdict on one row: whether its interval proves a regression, excludes one, or neither.

#[cfg(test)]
mod tests;

use super::statistics::Interval;

/// Number of pairs of every row.
pub const PAIRS: usize = 15;
/// Maximum number of pairs of a row, after two doublings of [`PAIRS`].
pub const MOST_PAIRS: usize = 60;
/// Maximum width of an interval that decides a row.
pub const WIDTH: f64 = 0.06;
/// Change that counts, if the whole interval exceeds it.
const CHANGE: f64 = 0.03;
/// Change of the median that fails a row with too wide an interval.
const DRIFT: f64 = 0.10;

/// Direction in which a row's metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// For times and sizes.
    Lower,
    /// For rates.
    Higher,
}

/// Judgement of a row.
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
    /// Returns whether the verdict fails the check.
    pub fn fails(self) -> bool {
        matches!(self, Verdict::Regressed | Verdict::Drifted)
    }

    /// Returns whether the verdict needs no more pairs.
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

/// Judges the interval of new/base ratios over `pairs` pairs. Fewer than [`PAIRS`] decide nothing.
pub fn judge(better: Better, interval: &Interval, pairs: usize) -> Verdict {
    // Distances in the worse direction, for times and rates alike.
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

/// Number of pairs that a row with `pairs` pairs (a full stage) and this result should have.
/// Doubles until the row is decided by a narrow interval, or has [`MOST_PAIRS`]: a few runs in
/// another state of the machine can put a wide interval as a whole on one side.
pub fn next_stage(verdict: Verdict, interval: &Interval, pairs: usize) -> usize {
    let is_settled = verdict.is_decided() && interval.width() <= WIDTH;
    if is_settled { pairs } else { (2 * pairs).min(MOST_PAIRS.max(pairs)) }
}

/// Minimum number of decided rows out of twenty. Does not apply if the user named rows.
pub const LEAST_DECIDED: usize = 12;
