//! Chapter 15: which microprocess computes, and which one holds the lock that all others want. Both
//! are planted, and found from outside, as `kumi top` and `kumi locks` do.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo::machine::{self, Machine, Neighbour};
use kumihimo::observe::{Holder, Lock};
use kumihimo::runtime::Runtime;
use kumihimo::sync::Mutex;
use kumihimo::thread::{self, Builder, JoinHandle};
use kumihimo_bench_kit::work::spin;
use kumihimo_machine::top::{TopItem, TopQuery, TopRow};

use crate::tour::page::text;
use crate::tour::{Args, Figures, check, one_to_one};

const VPS: usize = 2;
/// Number of microprocesses that want the lock.
const WAITERS: usize = 30;
/// The microprocess that computes, and the one that holds the lock.
const HOT: &str = "report";
const HOLDER: &str = "ledger";
/// Time between the two queries from which the shares of CPU time are computed.
const INTERVAL: Duration = Duration::from_millis(200);
/// Number of rows that are printed.
const ROWS: u32 = 3;
/// Rounds of [`spin`] between two switches: about 100 us.
const ROUNDS: u32 = 75_000;

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    if one_to_one() {
        text::say("Left out: microprocesses are kernel threads on this machine, which perf shows.");
        return Ok(());
    }
    let runtime = builder().build().map_err(|e| format!("no runtime: {e}"))?;
    if let Err(why) = machine::number() {
        text::say(&format!("Left out: other processes cannot find this process: {why}."));
        return Ok(());
    }
    text::say(&format!(
        "A program with two faults: a microprocess that computes all the time, and one that holds a mutex while it \
         sleeps, which {WAITERS} others want. Nothing was prepared in it. As `kumi top` sees it, the microprocesses \
         with the most CPU time:",
    ));
    println!();
    let found = plant_and_find(runtime)?;
    let rows: Vec<Vec<String>> = found.rows.iter().map(row).collect();
    text::table(&["", "CPU", "state", "waits for"], &rows);
    println!();
    text::say("As `kumi locks` sees it, the lock with the most waiters:");
    println!();
    let Lock { kind, address, holder, holder_does, waiters, longest_ns, .. } = &found.lock;
    let does = holder_does.as_ref().map_or_else(String::new, |does| format!(", which {does}"));
    let longest = text::time(Duration::from_nanos(*longest_ns));
    println!("  {kind} at {address:#x}: {holder}{does}");
    println!("  {waiters} waiters, the first one for {longest}");
    println!();
    check(found.rows.first().is_some_and(|row| name(row) == HOT), || {
        format!("the busiest microprocess is not '{HOT}'")
    })?;
    check(is_held_by(&found.lock, HOLDER), || format!("'{HOLDER}' does not hold the lock"))?;
    figures.add("queries that find a hot microprocess and a held lock", "", text::time(found.took));
    Ok(())
}

fn builder() -> kumihimo::runtime::Builder {
    Runtime::builder().vps(VPS)
}

fn name(row: &TopRow) -> &str {
    row.microprocess.name.as_deref().unwrap_or("-")
}

fn row(row: &TopRow) -> Vec<String> {
    let cpu = row.cpu.map_or_else(|| "-".to_owned(), |cores| format!("{:.1} %", cores * 100.0));
    let waits_for = row.microprocess.waits_for.clone().unwrap_or_default();
    vec![name(row).to_owned(), cpu, row.microprocess.state.to_string(), waits_for]
}

fn is_held_by(lock: &Lock, who: &str) -> bool {
    matches!(&lock.holder, Holder::Microprocess { name: Some(name), .. } if name == who)
}

/// What is seen from outside.
struct Found {
    /// The microprocesses with the most CPU time, the first ones only.
    rows: Vec<TopRow>,
    /// The lock with the most waiters.
    lock: Lock,
    /// Time that the queries took.
    took: Duration,
}

/// Runs the faulty program, and a thread that looks at it from outside.
fn plant_and_find(runtime: Runtime) -> Result<Found, String> {
    runtime.run(|| {
        let is_over = Arc::new(AtomicBool::new(false));
        let planted = plant(&is_over)?;
        // A kernel thread that uses nothing of the runtime, like another process.
        let outside = {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                let found = find();
                is_over.store(true, Relaxed);
                found
            })
        };
        for one in planted {
            one.join().map_err(|_| "a planted microprocess panicked")?;
        }
        outside.join().map_err(|_| "the looking thread panicked")?
    })
}

/// Starts the microprocesses. They end once `is_over` is true.
fn plant(is_over: &Arc<AtomicBool>) -> Result<Vec<JoinHandle<()>>, String> {
    let ledger = Arc::new(Mutex::new(0u32));
    let spawn = |name: String, body: Box<dyn FnOnce() + Send>| {
        Builder::new().name(name).spawn(body).map_err(|e| e.to_string())
    };
    let (hot, holder) = (is_over.clone(), (is_over.clone(), ledger.clone()));
    let mut all = vec![
        spawn(
            HOT.to_owned(),
            Box::new(move || {
                while !hot.load(Relaxed) {
                    black_box(spin(1, ROUNDS));
                    thread::yield_now();
                }
            }),
        )?,
        spawn(
            HOLDER.to_owned(),
            Box::new(move || {
                let (is_over, ledger) = holder;
                let _held = ledger.lock();
                while !is_over.load(Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
            }),
        )?,
    ];
    // Until the holder has it.
    while ledger.try_lock().is_ok() {
        thread::yield_now();
    }
    for number in 0..WAITERS {
        let ledger = ledger.clone();
        let wants = Box::new(move || {
            if let Ok(mut entries) = ledger.lock() {
                *entries += 1;
            }
        });
        all.push(spawn(format!("request-{number}"), wants)?);
    }
    Ok(all)
}

fn find() -> Result<Found, String> {
    let said = |e: machine::Error| e.to_string();
    let number = machine::number().map_err(|e| e.to_string())?;
    let mut process = Machine::mine().map_err(said)?.neighbour(number).map_err(said)?;
    // On a busy machine the requests may come to the lock late.
    while most_wanted(&mut process)?.is_none_or(|lock| lock.waiters != WAITERS as u64) {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Exact, because sampling needs preemption.
    top(&mut process, 0, Some(true))?;
    std::thread::sleep(INTERVAL);
    let began = Instant::now();
    let rows = top(&mut process, ROWS, Some(false))?;
    let lock = most_wanted(&mut process)?.ok_or("nobody waits for a lock any more")?;
    Ok(Found { rows, lock, took: began.elapsed() })
}

/// Queries the lock with the most waiters.
fn most_wanted(process: &mut Neighbour) -> Result<Option<Lock>, String> {
    let report = process.locks(1).map_err(|e| e.to_string())?;
    Ok(report.locks.into_iter().next())
}

/// Queries the microprocesses with the most CPU time since the last query.
fn top(process: &mut Neighbour, limit: u32, exact: Option<bool>) -> Result<Vec<TopRow>, String> {
    let query = TopQuery { session: 15, limit, exact, ..TopQuery::default() };
    let items = process.top(&query).map_err(|e| e.to_string())?;
    let row = |item| match item {
        TopItem::Row(row) => Some(*row),
        TopItem::Totals(_) | TopItem::Group(_) => None,
    };
    Ok(items.into_iter().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn planted_faults_are_found() {
        let _one =
            crate::tour::ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let runtime = builder().build().expect("a runtime");
        if one_to_one() || machine::number().is_err() {
            // Written past libtest's capture: xtask counts these lines.
            let line = "\n[skip] tour::found: microprocesses cannot be seen from outside here\n";
            std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
            return;
        }
        let found = plant_and_find(runtime).expect("no error");
        assert_eq!(name(&found.rows[0]), HOT, "{:?}", found.rows);
        assert!(is_held_by(&found.lock, HOLDER), "{:?}", found.lock);
        assert_eq!(found.lock.kind, "mutex");
        assert_eq!(found.lock.holder_does.as_deref(), Some("waits for the clock"));
    }
}
