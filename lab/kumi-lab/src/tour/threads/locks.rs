//! Chapter 10: the three locking designs of the resource table: the cost of each on one and on two
//! VPs, and its number of source lines.

use std::process::Command;
use std::time::Duration;

use kumihimo::resource::Locking;
use kumihimo_bench_locking::{PAPER, Row, Table};

use crate::tour::page::text;
use crate::tour::page::watch::Watch;
use crate::tour::{Args, Figures, check, one_to_one};

/// The paper's loads, with the number of iterations of each microprocess.
const LOADS: [(&str, u32); 3] = [("create", 2_000), ("region", 4_000), ("message", 1_000)];
/// Number of microprocesses, as in the paper.
const WORKERS: u32 = 24;
const VPS: [usize; 2] = [1, 2];
/// Number of runs, of which the fastest counts. The times of a build with debug assertions say
/// nothing, however often they are taken.
const RUNS: usize = if cfg!(debug_assertions) { 1 } else { 3 };

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    if one_to_one() {
        text::say(
            "Left out: microprocesses are kernel threads on this machine, so the kernel manages them.",
        );
        return Ok(());
    }
    text::say(&format!(
        "The runtime manages all its resources with five operations on one table, and only the table contains \
         their locking: one lock per kind of resource (`kind`), one lock per resource (`id`), or separate data for \
         each VP without locks (`vp`, the default). {WORKERS} microprocesses run concurrently, as in the paper. \
         Each starts and joins another one (create), allocates and frees 4 KB (region), and sends 4 KB to a \
         receiver (message). Time of one operation with 1 VP and with 2 VPs, and their ratio:",
    ));
    println!();
    let times = times()?;
    let head: Vec<String> = LOADS
        .iter()
        .flat_map(|(load, _)| [format!("{load}, 1 VP"), "2 VPs".to_owned(), "of it".to_owned()])
        .collect();
    let head: Vec<&str> = std::iter::once("").chain(head.iter().map(String::as_str)).collect();
    let rows: Vec<Vec<String>> =
        Locking::ALL.iter().zip(&times).map(|(design, loads)| row(*design, loads)).collect();
    text::table(&head, &rows);
    println!();
    let own = &times[Locking::ALL
        .iter()
        .position(|design| *design == Locking::default())
        .expect("the default design")];
    let ratios: Vec<String> = own.iter().map(|cell| ratio(*cell)).collect();
    figures.add("create, region, message: 2 VPs against 1", "", ratios.join(", "));
    text::say(
        "Number of lines with locking operations, counted in the sources by the paper's method (locks, atomic \
         read-modify-write operations and fences; without tests), compared with the paper's system and Linux:",
    );
    println!();
    match counted()? {
        Some(rows) => text::table(&["", "lines", "that lock", "%", "files", "that lock"], &rows),
        None => text::say(
            "(Not counted: the source directory of this program no longer exists. `cargo xtask locking` counts the \
             lines.)",
        ),
    }
    Ok(())
}

/// Time of one operation, by number of VPs.
type Cell = [Duration; VPS.len()];

fn row(design: Locking, loads: &[Cell]) -> Vec<String> {
    let cells =
        loads.iter().flat_map(|cell| [text::time(cell[0]), text::time(cell[1]), ratio(*cell)]);
    std::iter::once(design.to_string()).chain(cells).collect()
}

fn ratio([one, two]: Cell) -> String {
    format!("{:.2}", two.as_secs_f64() / one.as_secs_f64().max(1e-9))
}

/// Times by design and load. Each is measured in a separate process, because a process has one
/// design.
fn times() -> Result<[[Cell; LOADS.len()]; Locking::ALL.len()], String> {
    let mut times = [[[Duration::MAX; VPS.len()]; LOADS.len()]; Locking::ALL.len()];
    let all = RUNS * VPS.len() * LOADS.len() * Locking::ALL.len();
    let (watch, mut done) = (Watch::new("three locking designs", all), 0);
    for _ in 0..RUNS {
        for (load, (name, iterations)) in LOADS.into_iter().enumerate() {
            for (at, vps) in VPS.into_iter().enumerate() {
                for (design, locking) in Locking::ALL.into_iter().enumerate() {
                    let took = one(name, iterations, vps, locking)?;
                    let best = &mut times[design][load][at];
                    *best = took.min(*best);
                    done += 1;
                    watch.at(done);
                }
            }
        }
    }
    Ok(times)
}

/// Measures the time of one operation.
fn one(load: &str, iterations: u32, vps: usize, locking: Locking) -> Result<Duration, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let keys =
        [format!("load={load}"), format!("iterations={iterations}"), format!("locking={locking}")];
    let mut command = Command::new(program);
    let queue = crate::bench::child::default_queue();
    command
        .args(["bench-child", "--queue", queue, "resources", "--vps", &vps.to_string()])
        .args(&keys);
    let child = command.output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&child.stderr);
    check(child.status.success(), || format!("{load} with {locking}: {}: {said}", child.status))?;
    let whole = milliseconds(&String::from_utf8_lossy(&child.stdout), iterations)
        .ok_or("the output of a measurement is invalid")?;
    Ok(Duration::from_secs_f64(whole / 1e3 / f64::from(WORKERS * iterations)))
}

/// Parses `time 12.3 ms KEYS` for this number of iterations.
fn milliseconds(output: &str, iterations: u32) -> Option<f64> {
    let key = format!("iterations={iterations}");
    output.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["time", value, "ms", ref keys @ ..] if keys.contains(&key.as_str()) => {
            value.parse().ok().filter(|ms: &f64| *ms > 0.0)
        }
        _ => None,
    })
}

/// The counts of this source tree beside the paper's, or `None` without the sources.
fn counted() -> Result<Option<Vec<Vec<String>>>, String> {
    let Some(root) = kumihimo_bench_locking::sources() else { return Ok(None) };
    let table = Table::count(&root).map_err(|error| format!("locking lines: {error}"))?;
    let [_, tender, linux] = PAPER;
    let shown = [table.interface(), table.behind(), table.all(), tender, linux];
    Ok(Some(shown.iter().map(count).collect()))
}

fn count(row: &Row<'_>) -> Vec<String> {
    let share = format!("{:.2}", row.per_cent());
    let [code, locking, files, touched] =
        [row.lines.code, row.lines.locking, row.files, row.touched].map(text::number);
    vec![row.name.to_owned(), code, locking, share, files, touched]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_parsed() {
        let both = "time 1.5 ms load=create iterations=100\ntime 12.5 ms load=create iterations=2000 locking=vp\n";
        assert_eq!(milliseconds(both, 2_000), Some(12.5));
        for none in [
            "",
            "time 12.5 us iterations=7\n",
            "time 12.5 ms\n",
            "time 0 ms iterations=7\n",
            "time\n",
        ] {
            assert_eq!(milliseconds(none, 7), None, "{none:?}");
        }
    }

    #[test]
    fn every_design_has_a_row() {
        let cell = [Duration::from_nanos(200), Duration::from_nanos(124)];
        assert_eq!(row(Locking::Id, &[cell]), ["id", "200 ns", "124 ns", "0.62"]);
    }

    #[test]
    fn counts_of_this_tree_are_printed_with_the_papers() {
        let rows = counted().expect("no error").expect("tests have the sources");
        let names: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(names[..3], ["the resource interface", "behind it", "all crates"]);
        assert_eq!(rows[3], ["Tender, by id (P3)", "202,049", "653", "0.32", "581", "62"]);
        assert_eq!(rows[4][0], "Linux 2.6.39 (P3)");
    }
}
