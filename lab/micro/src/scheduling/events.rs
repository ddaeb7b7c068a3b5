//! `events`: time from a cause until the other side runs, and the number of answered sleeps.
//! Everything runs on one core.

use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::time::{Duration, Instant};

use kumihimo::runtime::{self, Metrics};
use kumihimo::thread;
use kumihimo_bench_kit::work::{BUSY_ROUNDS, spin};
use kumihimo_bench_kit::{Lateness, Request, per, sample};
use kumihimo_bench_stall::now_ns;
use kumihimo_events::source;

use super::preempted;
use crate::variant::Variant;

/// Number of counted sleeps.
const SLEEPS: usize = 100_000;
/// Number of wake-ups of a kernel thread for the floor, and of sleeps that a kernel thread ends.
const WAKES: usize = 2_000;
/// Longer than any source needs to detect a block, so the VP has been handed over when the call
/// ends.
const NOTICED: Duration = Duration::from_micros(600);

/// Checks that this machine supports the event source `asked`. Only this function and [`unblocked`]
/// query the source.
///
/// # Errors
/// `refused: ` and the reason.
pub fn check_source(asked: &str) -> Result<(), String> {
    let kind =
        source::Kind::from_name(asked).ok_or_else(|| format!("{asked}: unknown event source"))?;
    source::open_one(kind, 1).map(drop).map_err(|refused| format!("refused: {asked}: {refused}"))
}

/// Number of unblocked events so far. `None` if the source does not report them: then the correct
/// result of the call counts.
fn unblocked(now: &Metrics) -> Option<u64> {
    (now.events == source::Kind::Bpf.name()).then_some(now.unblocked)
}

pub fn events(request: &Request) {
    let source = request.get("events").unwrap_or("off");
    let variant = Variant::of(request);
    if request.wants("wakes") {
        assert_ne!(source, "off", "without a source, the sleep would never end");
        wakes(request, variant, source, request.value("sleeps", SLEEPS));
    }
    if request.wants("preempts") {
        preempted::preempts(request);
    }
    if request.wants("compute") {
        compute(variant, request.vps, request.value("chunks", 20_000));
    }
}

fn wakes(request: &Request, variant: Variant, source: &str, sleeps: usize) {
    let count = || unblocked(&runtime::metrics().expect("a runtime runs"));
    let before = count();
    let (late, right, interrupted) = blocked(variant, sleeps);
    let keys = match request.get("sticky") {
        Some(sticky) => format!("events={source} sticky={sticky}"),
        None => format!("events={source}"),
    };
    // A sticky microprocess causes no events. Then correct results count.
    let answered = match (before, count()) {
        (Some(before), Some(now)) if request.get("sticky") == Some("off") => {
            right.min((now - before) as usize)
        }
        _ => right,
    };
    let tail =
        |late: &Lateness| format!("{keys} p99:={:.1} least:={:.1}", late.us(0.99), late.us(0.0));
    sample("blocked", late.us(0.5), "us", &tail(&late));
    sample(
        "unblocked_exact",
        answered as f64,
        "sleeps",
        &format!("{keys} of:={sleeps} eintr:={interrupted}"),
    );
    let wakes = WAKES.min(sleeps);
    let late = ended(variant, wakes);
    sample("unblocked", late.us(0.5), "us", &tail(&late));
    // Nothing of the runtime runs meanwhile.
    let late = thread::blocking(|| floor(wakes));
    sample("blocked", late.us(0.5), "us", &format!("{} runtime=floor", tail(&late)));
}

/// One microprocess reads an empty pipe; the other one, which has the next turn, writes into it.
/// Returns the times until the other one ran, the number of calls with the correct byte, and the
/// number of interrupted calls.
fn blocked(variant: Variant, sleeps: usize) -> (Lateness, usize, usize) {
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let at = Arc::new(AtomicU64::new(0));
    let turn = Arc::new(AtomicUsize::new(0));
    let (seen, began) = (turn.clone(), at.clone());
    let other = variant.spawn(move || {
        let mut late = Lateness::default();
        for n in 1..=sleeps {
            while seen.load(Acquire) < n {
                thread::park();
            }
            late.record(Duration::from_nanos(now_ns().saturating_sub(began.load(Relaxed))));
            writer.write_all(&[n as u8]).expect("room");
        }
        late
    });
    let wakes = other.thread().clone();
    let sleeper = variant.spawn(move || {
        let (mut right, mut interrupted) = (0, 0);
        for n in 1..=sleeps {
            // Returns to a VP: the last call may have ended without one.
            thread::yield_now();
            turn.store(n, Release);
            wakes.unpark();
            at.store(now_ns(), Relaxed);
            let mut byte = [0];
            loop {
                match reader.read(&mut byte) {
                    Ok(1) if byte == [n as u8] => right += 1,
                    Ok(_) => {}
                    Err(e) if e.kind() == ErrorKind::Interrupted => {
                        interrupted += 1;
                        continue;
                    }
                    Err(e) => panic!("read: {e}"),
                }
                break;
            }
        }
        (right, interrupted)
    });
    let (right, interrupted) = sleeper.join().expect("no panic");
    (other.join().expect("no panic"), right, interrupted)
}

/// Measures from a kernel thread's write until the microprocess's call has returned. The VP was
/// handed over long before.
fn ended(variant: Variant, wakes: usize) -> Lateness {
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let at = Arc::new(AtomicU64::new(0));
    let turn = Arc::new(AtomicUsize::new(0));
    let (seen, ended) = (turn.clone(), at.clone());
    let kernel_thread = std::thread::spawn(move || {
        for n in 1..=wakes {
            while seen.load(Acquire) < n {
                std::thread::park();
            }
            std::thread::sleep(NOTICED);
            ended.store(now_ns(), Relaxed);
            writer.write_all(&[n as u8]).expect("room");
        }
    });
    let wake = kernel_thread.thread().clone();
    let sleeper = variant.spawn(move || {
        let mut late = Lateness::default();
        let mut byte = [0];
        for n in 1..=wakes {
            thread::yield_now();
            turn.store(n, Release);
            wake.unpark();
            reader.read_exact(&mut byte).expect("a byte");
            late.record(Duration::from_nanos(now_ns().saturating_sub(at.load(Relaxed))));
        }
        late
    });
    let late = sleeper.join().expect("no panic");
    kernel_thread.join().expect("no panic");
    late
}

/// One kernel thread wakes another one that sleeps on a futex, and then sleeps. On the same core.
fn floor(wakes: usize) -> Lateness {
    let at = Arc::new(AtomicU64::new(0));
    let turn = Arc::new(AtomicUsize::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let (seen, began, done) = (turn.clone(), at.clone(), over.clone());
    let waker = std::thread::current();
    let sleeper = std::thread::spawn(move || {
        let mut late = Lateness::default();
        for n in 1..=wakes {
            while seen.load(Acquire) < n {
                std::thread::park();
            }
            late.record(Duration::from_nanos(now_ns().saturating_sub(began.load(Relaxed))));
            done.store(true, Release);
            waker.unpark();
        }
        late
    });
    for n in 1..=wakes {
        at.store(now_ns(), Relaxed);
        turn.store(n, Release);
        sleeper.thread().unpark();
        while !over.swap(false, Acquire) {
            std::thread::park();
        }
    }
    sleeper.join().expect("no panic")
}

/// Two microprocesses on each VP compute for about 10 us and yield, without events. Reports
/// nanoseconds for a chunk and VP.
fn compute(variant: Variant, vps: usize, chunks: usize) {
    let start = Instant::now();
    let busy: Vec<_> = (0..2 * vps)
        .map(|i| {
            variant.spawn(move || {
                for _ in 0..chunks {
                    black_box(spin(i as u64 + 1, BUSY_ROUNDS));
                    thread::yield_now();
                }
            })
        })
        .collect();
    for one in busy {
        one.join().expect("no panic");
    }
    sample("time", per(start.elapsed(), 2 * chunks), "ns", "");
}
