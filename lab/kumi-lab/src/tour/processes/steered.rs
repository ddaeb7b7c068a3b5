//! Chapter 9: this process as seen from outside, with `kumi ps`; and one of its microprocesses
//! suspended and resumed from outside, drawn live.

use std::hint::black_box;
use std::io::{IsTerminal, Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo::machine::{self, Action, Done, Machine, State};
use kumihimo::policy::RoundRobin;
use kumihimo::resource::Id;
use kumihimo::runtime::Runtime;
use kumihimo::thread::{self, Builder};
use kumihimo_bench_kit::work::spin;

use crate::tour::page::text;
use crate::tour::{Args, Figures, check, one_to_one};
use kumi::show::show_space;

const VPS: usize = 2;
const NAMES: [&str; 4] = ["north", "east", "south", "west"];
/// Index of the microprocess that is suspended.
const ONE: usize = 1;
const COLUMN: Duration = Duration::from_millis(10);
const COLUMNS: usize = 84;
/// Columns at which it is suspended and resumed.
const SUSPENDED: usize = 28;
const RESUMED: usize = 56;
/// Columns between two pictures on a terminal.
const FILM: usize = 7;
/// Rounds of [`spin`] between two marks: about 20 us.
const ROUNDS: u32 = 15_000;

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    if one_to_one() {
        text::say(
            "Left out: microprocesses are kernel threads on this machine; the tools of the system list and control \
             them.",
        );
        return Ok(());
    }
    let runtime = builder().build().map_err(|e| format!("no runtime: {e}"))?;
    if let Err(why) = machine::number() {
        text::say(&format!("Left out: other processes cannot find this process: {why}."));
        return Ok(());
    }
    text::say(&format!(
        "Each microprocess of the machine has an id. Its first part is the number of the process. Each process has \
         an entry in a directory of its user and accepts requests on a socket there; there is no daemon. Four \
         microprocesses compute on {VPS} VPs. '{}' is suspended by a request as from `kumi suspend`, and resumed \
         later. Rounds of computation over time, one column for {}:",
        NAMES[ONE],
        text::time(COLUMN),
    ));
    println!();
    let live = stdout().is_terminal();
    let (sheet, seen) = watch(runtime, Sheet::new(), live)?;
    if !live {
        print!("{}", sheet.picture(Some(&seen)));
    }
    println!();
    text::say(&format!(
        "The microprocess stopped {} after the request. Output of `kumi ps` during that time:",
        text::time(seen.took)
    ));
    println!();
    seen.table.lines().for_each(|line| println!("  {line}"));
    check(seen.meanwhile[ONE] == 0, || {
        format!("it was suspended, and computed {} rounds", seen.meanwhile[ONE])
    })?;
    for (row, name) in NAMES.iter().enumerate() {
        check(row == ONE || seen.meanwhile[row] > 0, || format!("'{name}' stopped too"))?;
    }
    check(sheet.total(ONE) > seen.total, || format!("'{}' did not continue", NAMES[ONE]))?;
    figures.add("time from a suspend request to the stop", "", text::time(seen.took));
    Ok(())
}

fn builder() -> kumihimo::runtime::Builder {
    Runtime::builder().vps(VPS).policy(RoundRobin::with_quantum(COLUMN / 5))
}

/// Amount of computation of each microprocess in each column.
struct Sheet {
    start: Instant,
    rounds: [[AtomicU32; COLUMNS]; NAMES.len()],
    /// Rounds after the last column. The picture does not show them.
    later: [AtomicU32; NAMES.len()],
    /// Whether the run is over. The steering thread decides that, and not the clock: on a busy
    /// machine that thread may be late by any time, and the microprocess that it steers must not
    /// have ended by then.
    is_over: AtomicBool,
}

/// Observations from outside.
struct Seen {
    /// Time from the request until the microprocess stood still.
    took: Duration,
    /// Columns in which it was suspended and resumed.
    at: (usize, usize),
    /// Computation of each microprocess between the two.
    meanwhile: [u32; NAMES.len()],
    /// Computation of the suspended microprocess until it was resumed.
    total: u32,
    table: String,
}

impl Sheet {
    fn new() -> Sheet {
        Sheet {
            start: Instant::now(),
            rounds: [const { [const { AtomicU32::new(0) }; COLUMNS] }; NAMES.len()],
            later: [const { AtomicU32::new(0) }; NAMES.len()],
            is_over: AtomicBool::new(false),
        }
    }

    /// The current column, which may be beyond the last one.
    fn column(&self) -> usize {
        (self.start.elapsed().as_nanos() / COLUMN.as_nanos()) as usize
    }

    fn total(&self, row: usize) -> u32 {
        self.rounds[row].iter().chain([&self.later[row]]).map(|rounds| rounds.load(Relaxed)).sum()
    }

    fn totals(&self) -> [u32; NAMES.len()] {
        std::array::from_fn(|row| self.total(row))
    }

    /// Computes until the run is over.
    fn fill(&self, row: usize) {
        while !self.is_over.load(Relaxed) {
            black_box(spin(1, ROUNDS));
            let column = self.rounds[row].get(self.column());
            column.unwrap_or(&self.later[row]).fetch_add(1, Relaxed);
            thread::yield_now();
        }
    }

    /// Waits until a microprocess has computed more than `rounds`. Blocks the kernel thread.
    fn await_round(&self, row: usize, rounds: u32) {
        while self.total(row) <= rounds {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn picture(&self, seen: Option<&Seen>) -> String {
        let mut text = String::new();
        for (name, rounds) in NAMES.iter().zip(&self.rounds) {
            let line: String =
                rounds.iter().map(|n| if n.load(Relaxed) == 0 { ' ' } else { '=' }).collect();
            text += format!("  {name:<5}  {line}").trim_end();
            text.push('\n');
        }
        let (from, to) = seen.map_or((COLUMNS, COLUMNS), |seen| seen.at);
        let mark =
            |at, word| if at < COLUMNS { format!("{:at$}^ {word}", "") } else { String::new() };
        let first = mark(from, "suspended");
        let second = if to < COLUMNS {
            mark(to.saturating_sub(from + 11), "resumed")
        } else {
            String::new()
        };
        text += format!("         {first}{second}").trim_end();
        text.push('\n');
        text
    }
}

/// Runs four computing microprocesses, and a thread that steers from outside.
fn watch(runtime: Runtime, sheet: Sheet, live: bool) -> Result<(Arc<Sheet>, Seen), String> {
    runtime.run(|| {
        let sheet = Arc::new(sheet);
        let mut all = Vec::new();
        for (row, name) in NAMES.into_iter().enumerate() {
            let sheet = sheet.clone();
            let one = Builder::new().name(name.into()).spawn(move || sheet.fill(row));
            all.push(one.map_err(|e| e.to_string())?);
        }
        let them = all.iter().map(|one| one.thread().id()).chain([thread::current().id()]);
        let ids: Option<Vec<Id>> = them.map(thread::ThreadId::resource).collect();
        let ids = ids.ok_or("a microprocess without an id")?;
        // A kernel thread that uses nothing of the runtime, like another process.
        let outside = {
            let (sheet, steered) = (sheet.clone(), all[ONE].thread().clone());
            std::thread::spawn(move || {
                let seen = steer(&sheet, &ids, live);
                sheet.is_over.store(true, Relaxed);
                // After an error it may still be suspended, and would never end.
                let _ = steered.resume();
                seen
            })
        };
        for one in all {
            one.join().map_err(|_| "a computing microprocess panicked")?;
        }
        let seen = outside.join().map_err(|_| "the steering thread panicked")??;
        Ok((sheet, seen))
    })
}

/// `ids` are those of the microprocesses and of their joiner.
fn steer(sheet: &Sheet, ids: &[Id], live: bool) -> Result<Seen, String> {
    let said = |e: machine::Error| e.to_string();
    let id = ids[ONE];
    let mut process =
        Machine::mine().map_err(said)?.neighbour(id.location().space()).map_err(said)?;
    let space = process.space().map_err(said)?;
    let mut film = Film { live, drawn: false };
    film.until(sheet, SUSPENDED, None);
    let from = sheet.column();
    let asked = Instant::now();
    let done = process.act(id, Action::Suspend).map_err(said)?;
    // On a busy machine it may wait in the kernel for its turn, and stop only after that.
    while done == Done::OnReturn
        && process.microprocess(id).map_err(said)?.state != State::Suspended
    {
        thread::sleep(Duration::from_millis(1));
    }
    let took = asked.elapsed();
    let before = sheet.totals();
    // From here on, the microprocess must be resumed. The rows are requested individually, because
    // a list would visit the records of the million, too.
    let rows: Result<Vec<_>, _> = ids.iter().map(|id| process.microprocess(*id)).collect();
    let mut seen = Seen {
        took,
        at: (from, COLUMNS),
        meanwhile: [0; NAMES.len()],
        total: 0,
        table: String::new(),
    };
    film.until(sheet, RESUMED, Some(&seen));
    // On a busy machine the time may be too short for a round.
    (0..NAMES.len()).filter(|row| *row != ONE).for_each(|row| sheet.await_round(row, before[row]));
    let after = sheet.totals();
    seen.at.1 = sheet.column();
    process.act(id, Action::Resume).map_err(said)?;
    check(matches!(done, Done::Now | Done::OnReturn), || format!("suspend: {done:?}"))?;
    film.until(sheet, COLUMNS, Some(&seen));
    sheet.await_round(ONE, after[ONE]);
    seen.meanwhile = std::array::from_fn(|row| after[row] - before[row]);
    seen.total = after[ONE];
    let mut table = Vec::new();
    show_space(&mut table, None, &space, &rows.map_err(said)?).map_err(|e| e.to_string())?;
    seen.table = String::from_utf8_lossy(&table).into_owned();
    Ok(seen)
}

/// Draws pictures over each other on a terminal.
struct Film {
    live: bool,
    drawn: bool,
}

impl Film {
    fn until(&mut self, sheet: &Sheet, column: usize, seen: Option<&Seen>) {
        loop {
            let now = sheet.column();
            if self.live {
                if self.drawn {
                    // Move up to the first line of the previous picture, and clear everything
                    // below.
                    print!("\x1b[{}A\x1b[J", NAMES.len() + 1);
                }
                print!("{}", sheet.picture(seen));
                let _ = stdout().flush();
                self.drawn = true;
            }
            if now >= column {
                return;
            }
            std::thread::sleep(COLUMN * FILM.min(column - now) as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspend_one_of(sheet: Sheet) {
        let _one =
            crate::tour::ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let runtime = builder().build().expect("a runtime");
        if one_to_one() || machine::number().is_err() {
            // Written past libtest's capture: xtask counts these lines.
            let line =
                "\n[skip] tour::steered: microprocesses cannot be steered from outside here\n";
            std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
            return;
        }
        let (sheet, seen) = watch(runtime, sheet, false).expect("no error");
        assert_eq!(seen.meanwhile[ONE], 0);
        assert!(sheet.total(ONE) > seen.total, "it did not continue");
        let row = seen.table.lines().find(|line| line.contains(" east ")).expect("it is listed");
        assert!(row.contains(" suspended "), "{}", seen.table);
    }

    #[test]
    fn suspended_microprocess_makes_no_progress_until_resumed() {
        suspend_one_of(Sheet::new());
    }

    /// On a busy machine the steering thread may run for the first time after the last column.
    #[test]
    fn microprocess_is_suspended_however_late_the_request_comes() {
        let sheet = Sheet::new();
        let start = sheet.start.checked_sub(COLUMN * (COLUMNS as u32 + 1)).expect("after the boot");
        suspend_one_of(Sheet { start, ..sheet });
    }

    #[test]
    fn suspend_and_resume_are_marked_in_the_picture() {
        let sheet = Sheet::new();
        for (row, column) in [(0, 0), (1, 0), (0, 20), (1, 83)] {
            sheet.rounds[row][column].store(1, Relaxed);
        }
        let none = [0; NAMES.len()];
        let seen =
            Seen { took: COLUMN, at: (5, 30), meanwhile: none, total: 0, table: String::new() };
        let drawn = sheet.picture(Some(&seen));
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), NAMES.len() + 1);
        assert_eq!(lines[0], format!("  north  ={:19}=", ""));
        assert_eq!(lines[1], format!("  east   ={:82}=", ""));
        assert_eq!(lines[3], "  west");
        assert_eq!(
            (lines[4].find("^ suspended"), lines[4].find("^ resumed")),
            (Some(9 + 5), Some(9 + 30))
        );
        assert!(lines.iter().all(|line| line.len() <= 100));
    }
}
