//! Chapter 2: a million microprocesses alive at once, and their memory use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::Release};
use std::time::{Duration, Instant};

use kumihimo::{runtime, thread};
use kumihimo_arch::stack;
use kumihimo_bench::park_one;
use kumihimo_bench_kit::CpuClock;

use super::status::{self, Memory};
use crate::tour::page::text;
use crate::tour::page::watch::Watch;
use crate::tour::{Args, Figures, check, in_runtime};

const MILLION: usize = 1_000_000;
/// Slightly more memory than a lean microprocess takes, to estimate how many fit.
const LEAN_BYTES: u64 = 4_600;
const FULL_BYTES: u64 = 11_000;
const KERNEL_THREADS: usize = 1_000;
/// Time limit for creating lean ones, because the tour must end also on a busy machine.
const LEAN_PATIENCE: Duration = Duration::from_secs(28);
const FULL_PATIENCE: Duration = Duration::from_secs(20);

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    text::say(
        "Each microprocess starts, waits, is woken and is joined. A full microprocess has its own stack and \
         thread-local storage. A lean microprocess has only a stack (here of the smallest size), for code without \
         thread-local data. Number of lean microprocesses: a million. Number of full ones: as many as fit in a \
         quarter of the available memory, up to a million.",
    );
    println!();
    let kernel = kernel_threads();
    let lean = fitting(status::available() / 4 * 3, LEAN_BYTES);
    let lean = in_runtime(|| crowd(true, lean))?;
    runtime::trim();
    let full = fitting(status::available() / 4, FULL_BYTES);
    let full = in_runtime(|| crowd(false, full))?;
    runtime::trim();
    let row = |name: &str, c: &Crowd| {
        vec![
            name.to_owned(),
            text::number(c.count as u64),
            text::time(c.made),
            text::time(c.ended),
            text::time(c.cpu / c.count.max(1) as u32),
            text::bytes(c.memory.resident),
            text::bytes(c.memory.page_tables),
            text::bytes(c.each()),
        ]
    };
    text::table(
        &[
            "",
            "alive",
            "to make",
            "to wake, join",
            "CPU each",
            "resident",
            "page tables",
            "memory each",
        ],
        &[row("lean", &lean), row("full", &full), row("kernel threads", &kernel)],
    );
    println!();
    if let Some(most) = status::most_kernel_threads() {
        text::say(&format!(
            "The limits of the kernel on this machine allow {} kernel threads. Each kernel thread also has a stack \
             of {} in the kernel, which the last column includes. A parked microprocess uses no memory in the \
             kernel.",
            text::number(most),
            text::bytes(kernel.in_kernel / kernel.count as u64)
        ));
    }
    for (name, crowd) in [("lean", &lean), ("full", &full)] {
        if let Some(why) = &crowd.short {
            text::say(&format!("The number of {name} microprocesses is limited: {why}."));
        }
    }
    figures.add("alive at once, lean", "", text::number(lean.count as u64));
    figures.add("alive at once, full", "", text::number(full.count as u64));
    figures.add("memory each, lean", "", text::bytes(lean.each()));
    figures.add("memory each, full", text::bytes(kernel.each()), text::bytes(full.each()));
    let one = |c: &Crowd| text::time((c.made + c.ended) / c.count as u32);
    figures.add("to start, park, wake and join one, full", one(&kernel), one(&full));
    Ok(())
}

struct Crowd {
    count: usize,
    made: Duration,
    ended: Duration,
    /// CPU time of the process for the whole crowd: other programs do not count.
    cpu: Duration,
    memory: Memory,
    in_kernel: u64,
    /// Reason why there are fewer than planned.
    short: Option<String>,
}

impl Crowd {
    fn each(&self) -> u64 {
        (self.memory.resident + self.memory.page_tables + self.in_kernel) / self.count.max(1) as u64
    }
}

struct Wanted {
    count: usize,
    short: Option<String>,
}

fn fitting(memory: u64, each: u64) -> Wanted {
    if crate::tour::one_to_one() {
        return Wanted {
            count: KERNEL_THREADS,
            short: Some("each is a kernel thread on this machine".to_owned()),
        };
    }
    let mappings = (stack::guard_kind() == "mprotect").then(status::most_mappings).flatten();
    fewest(usize::try_from(memory / each).unwrap_or(MILLION), mappings, memory)
}

/// Determines the number that fits. Mappings matter if each stack needs two (before Linux 6.13);
/// lean and full ones share them.
fn fewest(fit: usize, mappings: Option<usize>, memory: u64) -> Wanted {
    let guarded = mappings.map_or(MILLION, |most| most / 5);
    let count = fit.max(1_000).min(guarded).min(MILLION);
    let short = if count == MILLION {
        None
    } else if count == guarded {
        Some("before Linux 6.13 each stack needs two mappings: see vm.max_map_count".to_owned())
    } else {
        Some(format!("the memory limit for this measurement is {}", text::bytes(memory)))
    };
    Wanted { count, short }
}

/// Runs in a microprocess.
fn crowd(lean: bool, wanted: Wanted) -> Result<Crowd, String> {
    let Wanted { count, mut short } = wanted;
    let (standing, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (what, patience) = if lean {
        ("starting lean microprocesses", LEAN_PATIENCE)
    } else {
        ("starting full microprocesses", FULL_PATIENCE)
    };
    let watch = Watch::new(what, count);
    // The list of handles is not part of the measured memory, so it is allocated before the first
    // measurement.
    let mut made: Vec<Option<thread::JoinHandle<usize>>> = Vec::new();
    made.resize_with(count, || None);
    let before = Memory::now();
    let (start, cpu) = (Instant::now(), CpuClock::now());
    let mut alive = 0;
    for (number, place) in made.iter_mut().enumerate() {
        match park_one(lean, number, standing.clone(), gate.clone()) {
            Ok(one) => *place = Some(one),
            Err(why) => {
                short = Some(format!("the next one could not be started: {why}"));
                break;
            }
        }
        alive += 1;
        if alive % 10_000 == 0 {
            watch.at(alive);
            if start.elapsed() > patience {
                short = Some(format!(
                    "{} have passed: this machine is slow or busy",
                    text::time(patience)
                ));
                break;
            }
        }
    }
    while standing.load(Relaxed) < alive {
        thread::yield_now();
    }
    let took = start.elapsed();
    let memory = Memory::now().since(before);
    let living = runtime::metrics().map_or(0, |m| m.living);
    drop(watch);
    let watch = Watch::new("waking and joining", alive);
    let start = Instant::now();
    gate.store(true, Release);
    for one in made.iter().flatten() {
        one.thread().unpark();
    }
    let mut sum = 0;
    for (joined, one) in made.into_iter().flatten().enumerate() {
        sum += one.join().map_err(|_| "a parked microprocess panicked")?;
        if joined % 10_000 == 0 {
            watch.at(joined);
        }
    }
    let (ended, cpu) = (start.elapsed(), cpu.elapsed());
    // The creating microprocess is alive as well. Kernel threads in place of microprocesses are not
    // counted.
    check(living > alive as u64 || crate::tour::one_to_one(), || {
        format!("{living} alive, not {alive} and one")
    })?;
    check(alive > 0 && sum == alive * (alive - 1) / 2, || {
        format!("the sum of their numbers is {sum}")
    })?;
    Ok(Crowd { count: alive, made: took, ended, cpu, memory, in_kernel: 0, short })
}

/// The same with a thousand kernel threads.
fn kernel_threads() -> Crowd {
    let watch = Watch::new("starting kernel threads", KERNEL_THREADS);
    let standing = Arc::new(AtomicUsize::new(0));
    let open = Arc::new(AtomicBool::new(false));
    let mut made = Vec::with_capacity(KERNEL_THREADS);
    let (before, stacks) = (Memory::now(), status::kernel_stacks());
    let (start, cpu) = (Instant::now(), CpuClock::now());
    let mut short = None;
    for _ in 0..KERNEL_THREADS {
        let (standing, open) = (standing.clone(), open.clone());
        let body = move || {
            standing.fetch_add(1, Relaxed);
            while !open.load(Relaxed) {
                std::thread::park();
            }
        };
        match std::thread::Builder::new().spawn(body) {
            Ok(one) => made.push(one),
            Err(why) => {
                short = Some(why.to_string());
                break;
            }
        }
    }
    let count = made.len();
    while standing.load(Relaxed) < count {
        std::thread::yield_now();
    }
    watch.at(count);
    let took = start.elapsed();
    let memory = Memory::now().since(before);
    let in_kernel = status::kernel_stacks().saturating_sub(stacks);
    let start = Instant::now();
    open.store(true, Release);
    for one in &made {
        one.thread().unpark();
    }
    for one in made {
        one.join().expect("no panic");
    }
    Crowd {
        count,
        made: took,
        ended: start.elapsed(),
        cpu: cpu.elapsed(),
        memory,
        in_kernel,
        short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_microprocesses_is_limited_by_memory_and_maps() {
        let all = fewest(usize::MAX, None, 0);
        assert_eq!((all.count, all.short), (MILLION, None));
        let few = fewest(5_000, None, 50_000_000);
        assert!(few.count == 5_000 && few.short.is_some_and(|why| why.contains("50.0 MB")));
        let guarded = fewest(MILLION, Some(65_530), 0);
        assert!(
            guarded.count == 13_106
                && guarded.short.is_some_and(|why| why.contains("max_map_count"))
        );
    }

    #[test]
    fn small_crowd_is_woken_and_joined() {
        for lean in [false, true] {
            let wanted = Wanted { count: 500, short: None };
            let crowd = in_runtime(move || crowd(lean, wanted)).unwrap();
            assert_eq!((crowd.count, crowd.short), (500, None));
        }
        assert_eq!(kernel_threads().count, KERNEL_THREADS);
    }
}
