//! Measures the cost of the programs at the scheduler's tracepoint for a process that does not use
//! them.
//!
//! Two threads that no program follows exchange bytes over pipes on one core, while 0, 1 or 8 other
//! processes hold the programs: each its own (`own`), or one for the machine (`shared`). Prints the
//! quartiles of 25 interleaved runs, in nanoseconds of CPU time for each switch. Also prints the
//! median of the ratios to the run of the same round without such a process. `again` repeats that
//! run.
//!
//! `cargo run --release -p kumihimo-events --example bystander`

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::process::{Child, Command, Stdio};
use std::thread;

use kumihimo_events::bpf::Bpf;
use kumihimo_events::bpf::tracepoint::Options;

const ROUNDS: u32 = 20_000;
const RUNS: usize = 25;
const CASES: [(usize, bool); 6] =
    [(0, false), (0, true), (1, false), (1, true), (8, false), (8, true)];

fn stay_on_core_0() {
    // SAFETY: all zero is an empty set; it lives through the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Holds the programs until the input ends.
fn hold(shares: bool) {
    let bpf = match Bpf::load_switch_with(8, &Options { shares, ..Options::default() }) {
        Ok(bpf) => bpf,
        Err(refused) => {
            eprintln!("{refused}");
            std::process::exit(1);
        }
    };
    println!("{}", bpf.tracepoint().expect("information").expect("at the tracepoint"));
    let _ = std::io::stdin().read(&mut [0]);
}

fn begin(shares: bool) -> Child {
    let program = std::env::current_exe().expect("a program");
    let mut child = Command::new(program)
        .arg(if shares { "shared" } else { "own" })
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("begun");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("read");
    assert!(line.contains("at sched_switch"), "{line}");
    child
}

/// Returns the CPU time of this process in nanoseconds.
fn cpu_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives through the call.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) }, 0);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Returns the nanoseconds of a switch. A round trip has two.
fn measure(to: &mut PipeWriter, from: &mut PipeReader) -> f64 {
    let start = cpu_time();
    for _ in 0..ROUNDS {
        to.write_all(&[0]).expect("written");
        from.read_exact(&mut [0]).expect("read");
    }
    (cpu_time() - start) / f64::from(2 * ROUNDS)
}

/// Returns the quantile `part` of the values: 0.5 is the median.
fn quantile(values: impl IntoIterator<Item = f64>, part: f64) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * part).round() as usize]
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        None => {}
        Some(way) => return hold(way == "shared"),
    }
    let ((mut pings, mut to), (mut from, mut answers)) =
        (pipe().expect("a pipe"), pipe().expect("a pipe"));
    thread::spawn(move || {
        stay_on_core_0();
        while pings.read_exact(&mut [0]).is_ok() && answers.write_all(&[0]).is_ok() {}
    });
    let mut times = vec![Vec::new(); CASES.len()];
    for _ in 0..RUNS {
        for ((processes, shares), times) in CASES.into_iter().zip(&mut times) {
            let all: Vec<_> = (0..processes).map(|_| begin(shares)).collect();
            times.push(thread::scope(|scope| {
                let measured = scope.spawn(|| {
                    stay_on_core_0();
                    measure(&mut to, &mut from)
                });
                measured.join().expect("measured")
            }));
            for mut process in all {
                drop(process.stdin.take());
                process.wait().expect("waited for");
            }
        }
    }
    for ((processes, shares), of) in CASES.into_iter().zip(&times) {
        let way = match (processes, shares) {
            (0, false) => "",
            (0, true) => "again",
            (_, false) => "own",
            (_, true) => "shared",
        };
        let [low, middle, high] = [0.25, 0.5, 0.75].map(|part| quantile(of.iter().copied(), part));
        let ratio = quantile(of.iter().zip(&times[0]).map(|(one, base)| one / base), 0.5);
        println!(
            "{processes} processes {way:<7} {middle:>6.0} ns ({low:.0} to {high:.0}), x {ratio:.3}"
        );
    }
}
