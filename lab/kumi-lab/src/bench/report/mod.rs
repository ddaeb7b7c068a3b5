//! Output: tables on the terminal, JSON lines, and a directory with the complete report.
//!
//! - `row`: a sample with its identity, and the row of all samples with the same identity; `stats`
//!   summarises their values.
//! - `table`: columns of text; `plot` and `bars`: charts as SVG.
//!
//! Input are samples of every run and verdicts of `figures`; output are lines and files. The module
//! uses nothing else of this crate.

mod bars;
pub mod plot;
pub mod row;
pub mod stats;
pub mod table;

use std::fs;
use std::path::Path;
use std::process::Command;

use kumi::host::description;

use super::figures::Verdict;
use bars::bars;
use plot::{Plot, plots};
use row::{Row, Rows};

const ROWS: [&str; 11] = [
    "metric", "runtime", "variant", "queue", "vps", "median", "min", "max", "unit", "runs",
    "remarks",
];
const FIGURES: [&str; 5] = ["figure", "vps", "to reach", "measured", ""];

/// Result of one benchmark.
pub struct Outcome {
    pub bench: String,
    pub rows: Rows,
    pub verdicts: Vec<Verdict>,
    pub failures: Vec<String>,
    /// Features that this machine lacks.
    pub refused: Vec<String>,
    /// Remarks for readers.
    pub notes: Vec<Note>,
}

/// A remark beside the rows.
pub enum Note {
    Text(String),
    /// Replaces the rows on the terminal if they would be too many.
    Table(Vec<String>, Vec<Vec<String>>),
}

impl Outcome {
    /// Text for the terminal.
    pub fn plain(&self) -> String {
        let mut text = format!("\n== {} ==\n", self.bench);
        if !self.notes.iter().any(|note| matches!(note, Note::Table(..))) {
            text += &table::plain(&ROWS, &self.row_cells());
        }
        if !self.verdicts.is_empty() {
            text += &format!("\n{}", table::plain(&FIGURES, &self.verdict_cells()));
        }
        for failure in &self.failures {
            text += &format!("MISSING ROW: {failure}\n");
        }
        for refused in &self.refused {
            text += &format!("NOT MEASURED: {refused}\n");
        }
        text + &self.notes(table::plain)
    }

    fn notes(&self, table: impl Fn(&[&str], &[Vec<String>]) -> String) -> String {
        let note = |note: &Note| match note {
            Note::Text(text) => format!("\n{text}\n"),
            Note::Table(head, body) => {
                format!("\n{}", table(&head.iter().map(String::as_str).collect::<Vec<_>>(), body))
            }
        };
        self.notes.iter().map(note).collect()
    }

    /// One JSON object for each line.
    pub fn json_lines(&self) -> String {
        self.rows.rows().iter().map(|row| format!("{}\n", row.json())).collect()
    }

    fn markdown(&self, plots: &[Plot]) -> String {
        let mut text = format!("\n## {}\n\n", self.bench);
        if !self.verdicts.is_empty() {
            text += &format!("{}\n", table::markdown(&FIGURES, &self.verdict_cells()));
        }
        for plot in plots {
            text += &format!("![{}]({})\n\n", plot.name, plot.name);
        }
        text += &table::markdown(&ROWS, &self.row_cells());
        for failure in &self.failures {
            text += &format!("\nMissing row: {failure}\n");
        }
        for refused in &self.refused {
            text += &format!("\nNot measured: {refused}\n");
        }
        text + &self.notes(table::markdown)
    }

    fn row_cells(&self) -> Vec<Vec<String>> {
        let cells = |row: &Row| {
            let (id, s) = (&row.identity, &row.summary);
            let numbers = [s.median, s.min, s.max].map(table::number);
            let [median, min, max] = numbers;
            vec![
                id.metric.clone(),
                id.runtime.clone(),
                id.variant.clone(),
                id.queue.clone(),
                id.vps.to_string(),
                median,
                min,
                max,
                row.unit.clone(),
                s.runs.to_string(),
                row.remarks(),
            ]
        };
        self.rows.rows().iter().map(cells).collect()
    }

    fn verdict_cells(&self) -> Vec<Vec<String>> {
        let cells = |v: &Verdict| {
            let measured = v.measured.map_or("-".to_owned(), table::number);
            vec![v.what.clone(), v.vps.to_string(), v.goal.clone(), measured, v.word().to_owned()]
        };
        self.verdicts.iter().map(cells).collect()
    }
}

/// What a report says about all its benchmarks. Made before the first of them, whose load would
/// otherwise be that of the machine.
pub struct Origin {
    command: String,
    /// Names and values.
    machine: Vec<(&'static str, String)>,
}

impl Origin {
    /// The report of what `command` measures from now on.
    pub fn now(command: String) -> Origin {
        Origin { command, machine: description::description() }
    }
}

/// Creates `folder` and writes `report.md`, `rows.jsonl`, `samples.jsonl` (every single sample) and
/// a chart of every curve into it.
pub fn write(folder: &Path, origin: &Origin, outcomes: &[Outcome]) -> Result<(), String> {
    let draw = |o: &Outcome| {
        Ok::<_, String>(
            [bars(&o.bench, &o.rows)?, plots(&o.bench, &o.rows)?].into_iter().flatten().collect(),
        )
    };
    let drawn = outcomes.iter().map(draw).collect::<Result<Vec<_>, _>>()?;
    let text = whole(origin, outcomes, &drawn);
    let rows: String = outcomes.iter().map(Outcome::json_lines).collect();
    let samples: String = outcomes.iter().flat_map(|o| o.rows.samples()).map(sample_line).collect();
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let files = [("report.md", text), ("rows.jsonl", rows), ("samples.jsonl", samples)]
        .map(|(name, text)| (name.to_owned(), text));
    let drawn = drawn.into_iter().flatten().map(|plot| (plot.name, plot.svg));
    for (name, content) in files.into_iter().chain(drawn) {
        let path = folder.join(name);
        fs::write(&path, content).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

fn whole(origin: &Origin, outcomes: &[Outcome], plots: &[Vec<Plot>]) -> String {
    let mut text = format!(
        "# Measurements\n\nMade by `{}`. Medians of alternating runs; `samples.jsonl` has every sample.\n\n",
        origin.command
    );
    let mut machine: Vec<_> = origin
        .machine
        .iter()
        .map(|(name, value)| vec![(*name).to_owned(), value.clone()])
        .collect();
    machine.push(vec!["commit".to_owned(), commit()]);
    text += &table::markdown(&["machine", ""], &machine);
    let verdicts: Vec<_> = outcomes.iter().flat_map(|o| &o.verdicts).collect();
    let reached = verdicts.iter().filter(|v| v.reached).count();
    text += &format!("\n{reached} of {} figures reached.\n", verdicts.len());
    for (outcome, plots) in outcomes.iter().zip(plots) {
        text += &outcome.markdown(plots);
    }
    text
}

/// The commit of the sources that this program was built from, if they are still there.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        let output = git.args(["-C", env!("CARGO_MANIFEST_DIR")]).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match git(&["rev-parse", "--short=8", "HEAD"]) {
        Some(commit) if git(&["diff", "--quiet", "HEAD"]).is_some() => commit,
        Some(commit) => format!("{commit}, with changes"),
        None => "not known".to_owned(),
    }
}

fn sample_line(sample: &row::Sample) -> String {
    let id = &sample.identity;
    let mut object = serde_json::Map::new();
    for (key, value) in [
        ("bench", &id.bench),
        ("metric", &id.metric),
        ("runtime", &id.runtime),
        ("variant", &id.variant),
        ("queue", &id.queue),
        ("unit", &sample.unit),
    ] {
        object.insert(key.to_owned(), value.as_str().into());
    }
    object.insert("vps".to_owned(), id.vps.into());
    object.insert("value".to_owned(), sample.value.into());
    for (key, value) in id.keys.iter().chain(&sample.notes) {
        object.insert(key.clone(), value.as_str().into());
    }
    format!("{}\n", serde_json::Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::row::Sample;
    use super::row::tests::from;
    use super::*;

    fn outcome() -> Outcome {
        let mut rows = Rows::default();
        rows.add(Sample::parse("switch 20 ns", &from("yield", "kumihimo", 1)).unwrap()).unwrap();
        let verdict = Verdict {
            bench: "yield",
            what: "switch full / go".into(),
            vps: 1,
            goal: "<= 0.260".into(),
            measured: Some(0.2),
            reached: true,
            aimed: None,
        };
        let failures = vec!["tokio yield: no".into()];
        Outcome {
            bench: "yield".into(),
            rows,
            verdicts: vec![verdict],
            failures,
            refused: vec!["yield events=bpf: no".into()],
            notes: vec![Note::Text("The cause is unknown.".into())],
        }
    }

    #[test]
    fn table_replaces_the_rows_on_the_terminal_only() {
        assert!(
            outcome().plain().contains("kumihimo")
                && outcome().plain().contains("The cause is unknown.")
        );
        let table = || Note::Table(vec!["one".into()], vec![vec!["all".into()]]);
        let with = Outcome { notes: vec![table()], ..outcome() };
        assert!(!with.plain().contains("kumihimo") && with.plain().ends_with("\none\nall\n"));
        assert!(
            with.markdown(&[]).contains("kumihimo")
                && with.markdown(&[]).ends_with("\n| one |\n| --- |\n| all |\n")
        );
    }

    #[test]
    fn failures_are_in_every_format() {
        assert!(outcome().plain().contains("MISSING ROW: tokio yield: no"));
        assert!(outcome().markdown(&[]).contains("Missing row: tokio yield: no"));
        assert!(outcome().plain().contains("NOT MEASURED: yield events=bpf: no"));
        assert!(outcome().markdown(&[]).contains("Not measured: yield events=bpf: no"));
    }

    #[test]
    fn report_has_figures_rows_and_machine() {
        let load = ("load at the start", "0.25 0.50 0.75 1/80 6348".to_owned());
        let text = whole(
            &Origin { command: "kumi bench yield".into(), machine: vec![load] },
            &[outcome()],
            &[vec![Plot { name: "yield-switch.svg".into(), svg: String::new() }]],
        );
        assert!(text.contains("| switch full / go | 1 | <= 0.260 | 0.200 | reached |"), "{text}");
        assert!(text.contains("1 of 1 figures reached"));
        assert!(text.contains("Made by `kumi bench yield`"), "{text}");
        assert!(text.contains("| load at the start | 0.25 0.50 0.75 1/80 6348 |"), "{text}");
        assert!(text.contains("![yield-switch.svg](yield-switch.svg)"));
    }
}
