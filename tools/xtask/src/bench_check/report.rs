//! Result of a run: a table, a markdown report, and whether the check fails.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use super::schedule::{Comparison, Outcome, Uncompared};
use super::verdict::{LEAST_DECIDED, PAIRS, Verdict};

/// A whole run.
#[derive(Debug)]
pub struct Report {
    /// Title of BASE's build.
    pub base: String,
    /// Title of the new build.
    pub new: String,
    /// Lines about the machine and the run.
    pub notes: Vec<String>,
    /// True if the user named rows: then no minimum of decided rows applies.
    pub named: bool,
    /// All rows.
    pub outcomes: Vec<Outcome>,
}

const HEAD: [&str; 9] =
    ["row", "unit", "base", "new", "ratio", "95 % interval", "pairs", "instructions", "verdict"];

impl Report {
    fn compared(&self) -> impl Iterator<Item = (&Outcome, &Comparison)> {
        self.outcomes.iter().filter_map(|one| Some((one, one.result.as_ref().ok()?)))
    }

    fn decided(&self) -> usize {
        self.compared().filter(|(_, comparison)| comparison.verdict.is_decided()).count()
    }

    fn names(&self, is: impl Fn(&Outcome) -> bool) -> Vec<&str> {
        self.outcomes.iter().filter(|one| is(one)).map(|one| one.row.name).collect()
    }

    /// Reasons why the check fails, one a line; empty if it passes.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for one in &self.outcomes {
            match &one.result {
                Ok(comparison) if comparison.verdict.fails() => {
                    failures.push(loss(one, comparison))
                }
                Ok(_) if one.cut_short && one.pairs < PAIRS => failures.push(format!(
                    "{}: time for measuring ended after {} pairs, {PAIRS} are needed",
                    one.row.name, one.pairs
                )),
                Err(Uncompared::Failed(why)) => failures.push(format!("{}: {why}", one.row.name)),
                Err(Uncompared::Unmeasured) => {
                    failures.push(format!(
                        "{}: time for measuring ended before the first pair",
                        one.row.name
                    ));
                }
                _ => {}
            }
        }
        if !self.named && self.decided() < LEAST_DECIDED {
            failures.push(format!(
                "only {} of {} rows are decided, {LEAST_DECIDED} are required: measure on an idle machine",
                self.decided(),
                self.outcomes.len()
            ));
        }
        failures
    }

    /// Lines below the table.
    fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut list = |names: Vec<&str>, what: &str| {
            if !names.is_empty() {
                lines.push(format!("{} {what}: {}", names.len(), names.join(", ")));
            }
        };
        let is = |one: &Outcome, wanted: fn(Verdict) -> bool| {
            one.result.as_ref().is_ok_and(|comparison| wanted(comparison.verdict))
        };
        list(self.names(|one| is(one, |verdict| verdict == Verdict::Undecided)), "undecided");
        list(
            self.names(|one| one.cut_short && one.result.is_ok()),
            "with fewer pairs, because the time was over",
        );
        let skipped = |one: &Outcome| matches!(one.result, Err(Uncompared::Skipped(_)));
        list(self.names(skipped), "skipped, because BASE does not have them");
        let refused = |one: &Outcome| matches!(one.result, Err(Uncompared::Refused(_)));
        list(self.names(refused), "skipped, because this machine cannot measure them");
        for one in &self.outcomes {
            if let Err(Uncompared::Skipped(why) | Uncompared::Refused(why)) = &one.result {
                lines.push(format!("{}: {why}", one.row.name));
            }
        }
        let rule = match self.named {
            true => "rows were named, so none has to be".to_owned(),
            false => format!("{LEAST_DECIDED} have to be"),
        };
        lines.push(format!("{} of {} rows decided ({rule})", self.decided(), self.outcomes.len()));
        lines
    }

    fn cells(&self) -> Vec<[String; 9]> {
        self.outcomes.iter().map(cells).collect()
    }

    /// Report for the terminal.
    pub fn plain(&self) -> String {
        let mut rows = vec![HEAD.map(str::to_owned)];
        rows.extend(self.cells());
        let width =
            |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 9] = std::array::from_fn(width);
        let mut text = format!("base: {}\nnew:  {}\n\n", self.base, self.new);
        for row in &rows {
            let padded =
                row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
                    0 | 1 | 8 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
            let _ = writeln!(text, "{}", padded.collect::<Vec<_>>().join("  ").trim_end());
        }
        text.push('\n');
        for line in self.notes.iter().chain(&self.summary()) {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// Report as markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("# bench-check\n\n- base: {}\n- new: {}\n", self.base, self.new);
        for line in self.notes.iter().chain(&self.summary()) {
            let _ = writeln!(text, "- {line}");
        }
        let _ = writeln!(text, "\n| {} |\n|{}|", HEAD.join(" | "), ["---"; 9].join("|"));
        for row in self.cells() {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        match self.failures().as_slice() {
            [] => text.push_str("\nPassed.\n"),
            failures => {
                text.push_str("\nFailed:\n");
                failures.iter().for_each(|why| _ = writeln!(text, "- {why}"));
            }
        }
        text
    }
}

fn loss(one: &Outcome, comparison: &Comparison) -> String {
    let name = one.row.name;
    let interval = comparison.interval;
    match comparison.verdict {
        Verdict::Drifted => {
            let median = interval.median;
            format!(
                "{name}: the interval stays wide, and the median ratio {median:.3} is more than 10 % worse"
            )
        }
        _ => {
            let (low, high) = (interval.low, interval.high);
            format!("{name}: the whole interval {low:.3}..{high:.3} is more than 3 % worse")
        }
    }
}

fn cells(one: &Outcome) -> [String; 9] {
    let fixed = |cells: [&str; 3]| cells.map(str::to_owned);
    let (name, unit) = (one.row.name.to_owned(), one.row.unit.to_owned());
    match &one.result {
        Ok(comparison) => {
            let interval = comparison.interval;
            let counted = |(base, new): (f64, f64)| format!("{} {}", figure(base), figure(new));
            [
                name,
                unit,
                figure(comparison.base),
                figure(comparison.new),
                format!("{:.3}", interval.median),
                format!("{:.3}..{:.3}", interval.low, interval.high),
                one.pairs.to_string(),
                comparison.instructions.map_or_else(|| "-".to_owned(), counted),
                comparison.verdict.word().to_owned(),
            ]
        }
        Err(why) => {
            let word = match why {
                Uncompared::Skipped(_) | Uncompared::Refused(_) => "skipped",
                Uncompared::Failed(_) => "FAILED",
                Uncompared::Unmeasured => "UNMEASURED",
            };
            let [base, new, ratio] = fixed(["-"; 3]);
            let [interval, instructions, verdict] = fixed(["-", "-", word]);
            [name, unit, base, new, ratio, interval, one.pairs.to_string(), instructions, verdict]
        }
    }
}

/// Formats with four significant digits, or as a whole number above.
fn figure(value: f64) -> String {
    let digits = match value {
        _ if value <= 0.0 || !value.is_finite() => 0,
        _ => (3 - value.log10().floor() as i32).clamp(0, 9) as usize,
    };
    format!("{value:.digits$}")
}
