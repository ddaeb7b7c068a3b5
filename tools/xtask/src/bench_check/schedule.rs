//! Order of the measurements: pairs of both builds in alternating order, in rounds over all
//! programs. Undecided rows get more pairs, within a time budget.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::builds::Side;
use super::child::Trouble;
use super::programs::Sample;
use super::rows::{Program, Row};
use super::statistics::{Interval, bootstrap, median};
use super::verdict::{MOST_PAIRS, PAIRS, Verdict, judge, next_stage};

/// Time for measuring, without builds.
#[derive(Debug)]
pub struct Budget {
    limit: Duration,
    spent: Duration,
}

impl Budget {
    /// Creates an unused budget.
    pub fn new(limit: Duration) -> Budget {
        Budget { limit, spent: Duration::ZERO }
    }

    /// Counts the time of a measurement, whatever its result.
    pub fn spend(&mut self, time: Duration) {
        self.spent += time;
    }

    /// Returns whether the rest of the budget suffices for `time`.
    pub fn allows(&self, time: Duration) -> bool {
        self.spent + time <= self.limit
    }

    /// Time spent so far.
    pub fn spent(&self) -> Duration {
        self.spent
    }
}

/// Samples of both builds, taken directly after each other.
#[derive(Clone, Debug)]
pub struct Pair {
    base: Sample,
    new: Sample,
}

/// Results of one program.
#[derive(Debug)]
pub struct Series {
    program: Program,
    rows: Vec<Row>,
    pairs: Vec<Pair>,
    /// Number of pairs that the program should have so far.
    target: usize,
    /// Duration of the last pair.
    took: Duration,
    /// Reason why the program gets no further pairs, and the build at fault.
    stopped: Option<(Side, Trouble)>,
}

/// Result of one row.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The row.
    pub row: Row,
    /// Number of pairs.
    pub pairs: usize,
    /// True if the budget ended before the row had all its pairs.
    pub cut_short: bool,
    /// The comparison, or why there is none.
    pub result: Result<Comparison, Uncompared>,
}

/// A row without a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uncompared {
    /// BASE does not have the row.
    Skipped(String),
    /// The machine lacks a feature that the row needs.
    Refused(String),
    /// A build failed to measure it.
    Failed(String),
    /// The budget ended before the row's first pair.
    Unmeasured,
}

/// A comparison of both builds.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Median of BASE's samples.
    pub base: f64,
    /// Median of the new build's samples.
    pub new: f64,
    /// Interval of the ratios new/base.
    pub interval: Interval,
    /// The judgement.
    pub verdict: Verdict,
    /// Median instructions for each operation, of BASE and of the new build.
    pub instructions: Option<(f64, f64)>,
}

/// Takes one measurement of a program with a build, for the pair with this number (`None`: the
/// result is discarded). Returns the sample and the elapsed time.
pub type Measure<'a> =
    dyn FnMut(Program, Side, Option<usize>) -> (Result<Sample, Trouble>, Duration) + 'a;

/// Measures rows. A first, discarded round shows which rows cannot be measured. Then follow `pairs`
/// rounds, and further rounds of undecided rows while the budget lasts.
pub fn run(
    rows: &[Row],
    pairs: usize,
    budget: &mut Budget,
    measure: &mut Measure<'_>,
) -> Vec<Outcome> {
    let mut all = series(rows, pairs);
    for one in &mut all {
        one.warm_up(budget, measure);
    }
    loop {
        let mut measured = false;
        for one in all.iter_mut().filter(|one| one.wants_pair()) {
            if budget.allows(one.took) {
                one.pair(budget, measure);
                measured = true;
            }
        }
        if !measured {
            break;
        }
        all.iter_mut().for_each(Series::extend);
    }
    let outcome = |row: &Row| {
        let one = all.iter().find(|one| one.rows.iter().any(|own| own.name == row.name));
        one.expect("every row is in a series").outcome(row)
    };
    rows.iter().map(outcome).collect()
}

/// Groups rows by the program that measures them.
fn series(rows: &[Row], pairs: usize) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for row in rows {
        match all.iter_mut().find(|one| one.program.is_same(row.program)) {
            Some(one) => one.rows.push(*row),
            None => all.push(Series {
                program: row.program,
                rows: vec![*row],
                pairs: Vec::new(),
                target: pairs,
                took: Duration::ZERO,
                stopped: None,
            }),
        }
    }
    all
}

impl Series {
    fn wants_pair(&self) -> bool {
        self.stopped.is_none() && self.pairs.len() < self.target
    }

    /// Measures both builds once. If one of them gives no sample, stops the series and returns
    /// `None`.
    fn both(
        &mut self,
        order: [Side; 2],
        number: Option<usize>,
        budget: &mut Budget,
        measure: &mut Measure<'_>,
    ) -> Option<Pair> {
        let mut samples = [None, None];
        self.took = Duration::ZERO;
        for side in order {
            let (result, took) = measure(self.program, side, number);
            budget.spend(took);
            self.took += took;
            match result.and_then(|sample| self.complete(sample)) {
                Ok(sample) => samples[side as usize] = Some(sample),
                Err(trouble) => {
                    self.stopped = Some((side, trouble));
                    return None;
                }
            }
        }
        let [base, new] = samples;
        Some(Pair { base: base?, new: new? })
    }

    /// Returns the sample if it has a positive value for every row.
    fn complete(&self, sample: Sample) -> Result<Sample, Trouble> {
        for row in &self.rows {
            match sample.metrics.get(row.metric) {
                Some(value) if value.is_finite() && *value > 0.0 => {}
                Some(value) => return Err(format!("{} is {value} {}", row.metric, row.unit).into()),
                None => return Err(Trouble::Missing(format!("no metric {:?}", row.metric))),
            }
        }
        Ok(sample)
    }

    fn warm_up(&mut self, budget: &mut Budget, measure: &mut Measure<'_>) {
        self.both(Side::ALL, None, budget, measure);
    }

    /// Measures a pair. The builds alternate in being first, so that effects of the first
    /// measurement on the second affect both builds equally.
    fn pair(&mut self, budget: &mut Budget, measure: &mut Measure<'_>) {
        let order = match self.pairs.len() % 2 {
            0 => [Side::Base, Side::New],
            _ => [Side::New, Side::Base],
        };
        let pair = self.both(order, Some(self.pairs.len()), budget, measure);
        self.pairs.extend(pair);
    }

    /// Raises the target at the end of a stage if a row is not settled. A run with fewer than
    /// [`PAIRS`] pairs is a trial and is not extended.
    fn extend(&mut self) {
        let ended = self.pairs.len() == self.target && self.stopped.is_none();
        if !ended || !(PAIRS..MOST_PAIRS).contains(&self.target) {
            return;
        }
        let next = |row: &Row| {
            let now = self.compare(row)?;
            Some(next_stage(now.verdict, &now.interval, self.target))
        };
        if let Some(target) = self.rows.iter().filter_map(next).max() {
            self.target = target;
        }
    }

    fn compare(&self, row: &Row) -> Option<Comparison> {
        let of = |sample: &Sample| sample.metrics[row.metric];
        let ratios: Vec<f64> =
            self.pairs.iter().map(|pair| of(&pair.new) / of(&pair.base)).collect();
        let interval = bootstrap(&ratios)?;
        let middle =
            |of: &dyn Fn(&Pair) -> f64| median(&self.pairs.iter().map(of).collect::<Vec<_>>());
        let counted: Vec<(f64, f64)> = self
            .pairs
            .iter()
            .filter_map(|pair| pair.base.instructions.zip(pair.new.instructions))
            .collect();
        let base: Vec<f64> = counted.iter().map(|(base, _)| *base).collect();
        let new: Vec<f64> = counted.iter().map(|(_, new)| *new).collect();
        Some(Comparison {
            base: middle(&|pair| of(&pair.base))?,
            new: middle(&|pair| of(&pair.new))?,
            interval,
            verdict: judge(row.better, &interval, self.pairs.len()),
            instructions: median(&base).zip(median(&new)),
        })
    }

    fn outcome(&self, row: &Row) -> Outcome {
        let result = match &self.stopped {
            Some((Side::Base, Trouble::Missing(why))) => Err(Uncompared::Skipped(why.clone())),
            // BASE's measurement succeeded, so the machine has the required features.
            Some((Side::Base, Trouble::Refused(why))) => Err(Uncompared::Refused(why.clone())),
            Some((side, trouble)) => Err(Uncompared::Failed(format!("{}: {trouble}", side.name()))),
            None => self.compare(row).ok_or(Uncompared::Unmeasured),
        };
        Outcome { row: *row, pairs: self.pairs.len(), cut_short: self.wants_pair(), result }
    }
}
