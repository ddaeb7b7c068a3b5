//! What the programs at the scheduler's tracepoint cost a process that has nothing to do with them.
//!
//! Two threads that no program follows play ping-pong over pipes on one core, while 0, 1 or 8 other
//! processes hold the programs: each its own (`own`), or one for the machine (`shared`). Prints the
//! median of nine interleaved runs, ns of a switch, and the ratio to no process.
//!
//! `cargo run --release -p kumihimo-events --example bystander`

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use kumihimo_events::bpf::Bpf;
use kumihimo_events::bpf::tracepoint::Options;

const ROUNDS: u32 = 20_000;
const RUNS: usize = 9;
const CASES: [(usize, bool); 5] = [(0, true), (1, false), (1, true), (8, false), (8, true)];

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

/// ns of a switch: a round trip has two.
fn measure(to: &mut PipeWriter, from: &mut PipeReader) -> f64 {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        to.write_all(&[0]).expect("written");
        from.read_exact(&mut [0]).expect("read");
    }
    start.elapsed().as_nanos() as f64 / f64::from(2 * ROUNDS)
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
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
    let base = median(&times[0]);
    for ((processes, shares), times) in CASES.into_iter().zip(&times) {
        let way = match (processes, shares) {
            (0, _) => "",
            (_, true) => "shared",
            (_, false) => "own",
        };
        let time = median(times);
        println!("{processes} processes {way:<7} {time:>6.0} ns a switch, {:>5.3}", time / base);
    }
}
