//! Measures the cost of an attached BPF event at each sleep of a kernel thread. Two threads
//! exchange bytes over pipes on one core, and one of them is attached in various ways.
//!
//! Prints the median of nine interleaved runs, in nanoseconds for each round trip. Also prints the
//! difference for each sleep of the attached thread, which sleeps once in a round trip.
//!
//! `cargo run --release -p kumihimo-events --example switch_cost [switch]`; `switch`: at the
//! scheduler's tracepoint

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use kumihimo_events::bpf::{Bpf, SLOT_SIZE, WANTS_BLOCKED, WANTS_UNBLOCKED};

const ROUNDS: u32 = 20_000;
const RUNS: usize = 9;
const MODES: [&str; 5] =
    ["not attached", "masked", "unmasked, no VP", "lent, reported", "lent, reported, trap"];

extern "C" fn nothing(_: i32) {}

fn stay_on_core_0() {
    // SAFETY: all zeros is an empty set; it lives through the call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Returns nanoseconds for each round trip.
fn run(bpf: &Bpf, mode: usize, to: &mut PipeWriter, from: &mut PipeReader) -> f64 {
    // SAFETY: slot 1, which lives as long as `bpf`; atomics only.
    let (vp, masked, wanted) = unsafe {
        let slot = bpf.memory().0.add(SLOT_SIZE);
        (
            &*slot.add(8).cast::<AtomicU64>(),
            &*slot.add(16).cast::<AtomicU32>(),
            &*slot.add(20).cast::<AtomicU32>(),
        )
    };
    masked.store(u32::from(mode < 2), Ordering::Relaxed);
    wanted.store(
        if mode == 3 { WANTS_BLOCKED } else { WANTS_BLOCKED | WANTS_UNBLOCKED },
        Ordering::Relaxed,
    );
    let attached = (mode > 0).then(|| bpf.attach(1).expect("attached"));
    let start = Instant::now();
    for _ in 0..ROUNDS {
        vp.store(if mode >= 3 { 4 } else { 0 }, Ordering::Relaxed);
        to.write_all(&[0]).expect("written");
        from.read_exact(&mut [0]).expect("read");
        if mode >= 3 {
            bpf.drain(|_, _| ());
        }
    }
    let time = start.elapsed().as_nanos() as f64 / f64::from(ROUNDS);
    masked.store(1, Ordering::Relaxed);
    drop(attached);
    time
}

fn main() {
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGTRAP, nothing as *const () as usize) };
    let is_switch = std::env::args().nth(1).is_some_and(|way| way == "switch");
    let bpf = match if is_switch { Bpf::load_switch(1) } else { Bpf::open(1) } {
        Ok(bpf) => bpf,
        Err(refused) => {
            eprintln!("{refused}");
            std::process::exit(1);
        }
    };
    let ((mut pings, mut to), (mut from, mut answers)) =
        (pipe().expect("a pipe"), pipe().expect("a pipe"));
    thread::spawn(move || {
        stay_on_core_0();
        while pings.read_exact(&mut [0]).is_ok() && answers.write_all(&[0]).is_ok() {}
    });
    stay_on_core_0();
    let mut times = [[0.0; RUNS]; MODES.len()];
    for n in 0..RUNS {
        for (mode, times) in times.iter_mut().enumerate() {
            times[n] = run(&bpf, mode, &mut to, &mut from);
        }
    }
    let median = |times: &[f64; RUNS]| {
        let mut times = *times;
        times.sort_by(f64::total_cmp);
        times[RUNS / 2]
    };
    let base = median(&times[0]);
    for (mode, times) in MODES.iter().zip(&times) {
        let time = median(times);
        println!("{mode:<20} {time:>6.0} ns a round trip, {:>+6.0} ns a sleep", time - base);
    }
}
