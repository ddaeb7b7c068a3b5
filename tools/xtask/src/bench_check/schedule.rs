//! The order of measurements: pairs of both builds in alternating order, round by round over all
//! programs, more pairs for rows that stay undecided, within a budget of time.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::builds::Side;
use super::child::Trouble;
use super::programs::Sample;
use super::rows::{Program, Row};
use super::statistics::{Interval, bootstrap, median};
use super::verdict::{MOST_PAIRS, PAIRS, Verdict, judge, next_stage};

/// Time for measuring. Builds do not count.
#[derive(Debug)]
pub struct Budget {
    limit: Duration,
    spent: Duration,
}

impl Budget {
    /// Of which nothing is spent.
    pub fn new(limit: Duration) -> Budget {
        Budget { limit, spent: Duration::ZERO }
    }

    /// Counts a measurement, whatever came of it.
    pub fn spend(&mut self, time: Duration) {
        self.spent += time;
    }

    /// Whether there is room for something that takes so long.
    pub fn allows(&self, time: Duration) -> bool {
        self.spent + time <= self.limit
    }

    /// Spent so far.
    pub fn spent(&self) -> Duration {
        self.spent
    }
}

/// The samples of both builds, taken one directly after the other.
#[derive(Clone, Debug)]
pub struct Pair {
    base: Sample,
    new: Sample,
}

/// What one program came to.
#[derive(Debug)]
pub struct Series {
    program: Program,
    rows: Vec<Row>,
    pairs: Vec<Pair>,
    /// Pairs that it should have so far.
    target: usize,
    /// Of one pair, as the last one took.
    took: Duration,
    /// Why it has no further pairs, and of which build.
    stopped: Option<(Side, Trouble)>,
}

/// What one row came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The row.
    pub row: Row,
    /// Its pairs.
    pub pairs: usize,
    /// Whether the budget ended before it had all the pairs that it should have.
    pub cut_short: bool,
    /// Why it was not compared; else its comparison.
    pub result: Result<Comparison, Uncompared>,
}

/// A row without a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uncompared {
    /// BASE does not have the row.
    Skipped(String),
    /// The machine does not offer what it needs.
    Refused(String),
    /// A build failed to measure it.
    Failed(String),
    /// The budget was spent before its first pair.
    Unmeasured,
}

/// A row whose builds were compared.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Median of BASE's samples.
    pub base: f64,
    /// Median of the new build's samples.
    pub new: f64,
    /// Of the ratios new/base.
    pub interval: Interval,
    /// The judgement.
    pub verdict: Verdict,
    /// Median instructions for each operation, of BASE and of the new build.
    pub instructions: Option<(f64, f64)>,
}

/// One measurement: of a program, with a build, for the pair of this number (`None`: discarded).
/// Returns the sample and the time that it took.
pub type Measure<'a> =
    dyn FnMut(Program, Side, Option<usize>) -> (Result<Sample, Trouble>, Duration) + 'a;

/// Measures rows: one discarded round first, which shows what cannot be measured, then `pairs`
/// rounds, then further rounds of undecided rows, while the budget lasts.
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

/// Rows by the program that measures them.
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

    /// Both builds once; `None` and a stop if one of them gave no sample.
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

    /// The sample, if it has a positive value for every row.
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

    /// The builds take turns to be first, so that what a first measurement does to a second one
    /// happens to both alike.
    fn pair(&mut self, budget: &mut Budget, measure: &mut Measure<'_>) {
        let order = match self.pairs.len() % 2 {
            0 => [Side::Base, Side::New],
            _ => [Side::New, Side::Base],
        };
        let pair = self.both(order, Some(self.pairs.len()), budget, measure);
        self.pairs.extend(pair);
    }

    /// Raises the target at the end of a stage, if a row is undecided. Fewer than [`PAIRS`] were
    /// asked for only to try rows out.
    fn extend(&mut self) {
        let ended = self.pairs.len() == self.target && self.stopped.is_none();
        if !ended || !(PAIRS..MOST_PAIRS).contains(&self.target) {
            return;
        }
        let next = |row: &Row| Some(next_stage(self.compare(row)?.verdict, self.target));
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
            // What BASE could measure, the machine offers.
            Some((Side::Base, Trouble::Refused(why))) => Err(Uncompared::Refused(why.clone())),
            Some((side, trouble)) => Err(Uncompared::Failed(format!("{}: {trouble}", side.name()))),
            None => self.compare(row).ok_or(Uncompared::Unmeasured),
        };
        Outcome { row: *row, pairs: self.pairs.len(), cut_short: self.wants_pair(), result }
    }
}
