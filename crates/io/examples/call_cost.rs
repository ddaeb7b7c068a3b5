//! What it costs to say before a call that it may block (`thread::blocking`), where it returns at
//! once and where it does wait. Prints the median of nine interleaved runs, ns per call, alone on
//! its virtual processor and beside 16 others that yield.
//!
//! `KUMI_EVENTS=bpf KUMI_VPS=1 cargo run --release -p kumihimo-io --example call_cost`

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kumihimo_runtime::runtime::{Runtime, metrics};
use kumihimo_runtime::thread::{self, blocking};

const RUNS: usize = 9;
const SIZE: u64 = 64 << 20;

fn stat() {
    black_box(std::fs::metadata("/etc/passwd").is_ok());
}

fn uncached(file: &File, n: u64) {
    // SAFETY: no pointers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    // Far apart, so that nothing is read ahead.
    file.read_exact_at(&mut [0; 4096], n * 7919 * 4096 % SIZE).expect("read");
}

fn time(calls: u64, mut call: impl FnMut(u64)) -> f64 {
    // One that slept unnoticed may have no virtual processor: here it gets one again.
    thread::yield_now();
    let start = Instant::now();
    (0..calls).for_each(&mut call);
    start.elapsed().as_nanos() as f64 / calls as f64
}

fn measure(beside: &str) {
    let path = std::env::temp_dir().join(format!("kumihimo-call-cost-{}", std::process::id()));
    let mut file =
        File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
    std::fs::remove_file(&path).expect("removed");
    (0..SIZE >> 20).for_each(|_| file.write_all(&[1; 1 << 20]).expect("written"));
    file.sync_all().expect("synced");
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..RUNS {
        times[0].push(time(20_000, |_| stat()));
        times[1].push(time(20_000, |_| blocking(stat)));
        times[2].push(time(200, |n| uncached(&file, n)));
        times[3].push(time(200, |n| blocking(|| uncached(&file, n))));
    }
    let [stat, stat_blocking, read, read_blocking] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[RUNS / 2]
    });
    println!(
        "{beside}: stat {stat:.0}, blocking {stat_blocking:.0}; uncached read {read:.0}, blocking {read_blocking:.0}"
    );
}

fn main() {
    let runtime = Runtime::builder().build().expect("a runtime");
    runtime.run(|| {
        let metrics = metrics().expect("it runs");
        println!("events {}, {} VPs", metrics.events, metrics.vps.len());
        measure("alone");
        static OVER: AtomicBool = AtomicBool::new(false);
        thread::scope(|s| {
            for _ in 0..16 {
                s.spawn(|| {
                    while !OVER.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                });
            }
            measure("beside 16 that yield");
            OVER.store(true, Ordering::Relaxed);
        });
    });
}
