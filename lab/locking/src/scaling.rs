//! Time that two virtual processors save, for each line that touches locking (P3, table 3).

use std::fmt;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::{PAPER, Row};

/// Loads, with the percentage of time that Linux saves in each (P3: 1 to 4 cores).
const LOADS: [(&str, f64); 3] = [("create", 70.6), ("region", 66.0), ("message", 70.0)];
/// Locking designs of the resource table.
const DESIGNS: [&str; 3] = ["kind", "id", "vp"];

/// Time saved by a second virtual processor in one load.
#[derive(Clone, PartialEq, Debug)]
pub struct Load {
    /// Name of the load and of the locking design.
    pub name: String,
    /// Time saved, as a percentage of the time on one virtual processor.
    pub less_time: f64,
    /// Time that Linux saves in the same load, in percent.
    pub linux: f64,
}

/// The table of time saved for each line that touches locking.
pub struct Scaling {
    /// Lines that touch locking.
    pub locking: u64,
    /// One row for each load.
    pub loads: Vec<Load>,
}

impl Scaling {
    /// A single load with the given reduction in percent.
    #[must_use]
    pub fn given(all: &Row<'_>, reduction: f64) -> Self {
        let load = Load { name: "given, 1-to-2".to_owned(), less_time: reduction, linux: 70.6 };
        Self { locking: all.lines.locking, loads: vec![load] }
    }

    /// The loads measured by `kumi bench resources`, from the rows.jsonl of a report.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or a line is not JSON.
    pub fn measured(all: &Row<'_>, rows: &Path) -> io::Result<Self> {
        let named = |why: String| io::Error::other(format!("{}: {why}", rows.display()));
        let text = std::fs::read_to_string(rows).map_err(|error| named(error.to_string()))?;
        let loads = loads(&text).map_err(named)?;
        Ok(Self { locking: all.lines.locking, loads })
    }
}

/// The header, a row for each load, and the paper's own figures.
impl fmt::Display for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28} {:>10} {:>8} {:>12} {:>10}",
            "less time", "%", "lines", "% a line", "of Linux"
        )?;
        let [_, tender, linux] = PAPER.map(|row| row.lines.locking);
        for Load { name, less_time, linux: same_load } in &self.loads {
            let of_linux = less_time / self.locking as f64 / (same_load / linux as f64);
            row(f, name, *less_time, self.locking, of_linux)?;
        }
        // The paper's figures at 4 cores, with the line counts of its table 1. Its table 3 prints
        // fractions under the header "per cent".
        let own = 61.1 / tender as f64 / (70.6 / linux as f64);
        row(f, "create, 1 to 4 cores (P3)", 61.1, tender, own)?;
        row(f, "the same, Linux 2.6.39 (P3)", 70.6, linux, 1.0)
    }
}

fn row(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    less_time: f64,
    lines: u64,
    of_linux: f64,
) -> fmt::Result {
    let a_line = less_time / lines as f64;
    writeln!(f, "{name:<28} {less_time:10.1} {lines:8} {a_line:12.4} {of_linux:9.1}x")
}

/// One measurement: the ratio of the times on two virtual processors and on one.
struct Ratio {
    load: String,
    design: String,
    iterations: f64,
    median: f64,
}

/// The loads in a rows.jsonl, each with the highest number of iterations that was measured.
fn loads(rows: &str) -> Result<Vec<Load>, String> {
    let mut ratios = Vec::new();
    for (at, line) in rows.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let row =
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", at + 1))?;
        ratios.extend(ratio(&row));
    }
    let of = |load: &str, design: &str| {
        let same = ratios.iter().filter(|ratio| ratio.load == load && ratio.design == design);
        // `max_by` returns the last of equal elements, so a later row replaces an earlier one.
        same.max_by(|one, other| one.iterations.total_cmp(&other.iterations))
    };
    let mut loads = Vec::new();
    for (load, linux) in LOADS {
        for design in DESIGNS {
            if let Some(ratio) = of(load, design) {
                loads.push(Load {
                    name: format!("{load}, {design}"),
                    less_time: 100.0 * (1.0 - ratio.median),
                    linux,
                });
            }
        }
    }
    Ok(loads)
}

fn ratio(row: &Value) -> Option<Ratio> {
    let text = |key: &str| row[key].as_str();
    // Values of keys are numbers or strings, depending on the contender.
    let number = |key: &str| row[key].as_f64().or_else(|| row[key].as_str()?.parse().ok());
    let load = text("metric")?.strip_suffix("_scale")?;
    let ours = text("runtime") == Some("kumihimo") && number("vps") == Some(2.0);
    ours.then_some(Ratio {
        load: load.to_owned(),
        design: text("locking")?.to_owned(),
        iterations: number("iterations").unwrap_or(0.0),
        median: number("median")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(metric: &str, design: &str, iterations: u32, median: f64) -> String {
        format!(
            r#"{{"bench":"resources","metric":"{metric}","runtime":"kumihimo","vps":2,"median":{median},"iterations":{iterations},"locking":"{design}"}}"#
        )
    }

    #[test]
    fn row_with_the_most_iterations_is_used() {
        let rows = [
            line("create_scale", "vp", 100, 0.9),
            line("create_scale", "vp", 10_000, 0.5),
            line("create_scale", "vp", 1_000, 0.7),
            line("region_scale", "kind", 100, 1.25),
        ];
        let found = loads(&rows.join("\n")).expect("read");
        let load = |name: &str, less_time, linux| Load { name: name.to_owned(), less_time, linux };
        assert_eq!(found, [load("create, vp", 50.0, 70.6), load("region, kind", -25.0, 66.0)]);
    }

    #[test]
    fn later_row_replaces_an_equal_number_of_iterations() {
        let rows = [line("create_scale", "vp", 100, 0.75), line("create_scale", "vp", 100, 0.5)];
        assert_eq!(loads(&rows.join("\n")).expect("read")[0].less_time, 50.0);
    }

    #[test]
    fn other_rows_are_left_out() {
        let good = line("create_scale", "vp", 100, 0.5);
        let others = [
            line("time", "vp", 100, 0.5),
            line("other_scale", "vp", 100, 0.5),
            good.replace("kumihimo", "go"),
            good.replace("\"vps\":2", "\"vps\":1"),
            good.replace("locking", "queue"),
            String::new(),
        ];
        assert_eq!(loads(&others.join("\n")), Ok(vec![]));
    }

    #[test]
    fn numbers_may_be_text() {
        let row = line("create_scale", "vp", 100, 0.5).replace("\"vps\":2", "\"vps\":\"2\"");
        assert_eq!(loads(&row).expect("read").len(), 1);
    }

    #[test]
    fn invalid_json_line_is_an_error() {
        let rows = format!("{}\n{{\n", line("create_scale", "vp", 100, 0.5));
        assert!(loads(&rows).unwrap_err().starts_with("line 2: "));
    }

    #[test]
    fn given_reduction_is_printed_with_the_papers() {
        let all = Row { lines: crate::Lines { code: 1, locking: 678 }, ..PAPER[0] };
        assert_eq!(
            Scaling::given(&all, 12.5).to_string(),
            "less time                             %    lines     % a line   of Linux\n\
             given, 1-to-2                      12.5      678       0.0184       1.3x\n\
             create, 1 to 4 cores (P3)          61.1      653       0.0936       6.7x\n\
             the same, Linux 2.6.39 (P3)        70.6     5033       0.0140       1.0x\n"
        );
    }
}
