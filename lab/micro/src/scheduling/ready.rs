//! `priority-local`: delay until a microprocess of high priority runs after it has become ready,
//! while others compute without calls on every VP.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Release};
use std::time::{Duration, Instant};

use kumihimo::runtime;
use kumihimo::thread;
use kumihimo_bench_kit::work::BUSY;
use kumihimo_bench_kit::{Lateness, Request, sample};
use kumihimo_bench_stall::now_ns;

use super::preempted;
use super::preempted::Looping;
use crate::variant::Variant;

/// Level of the busy microprocesses, relative to the waiting one.
const BELOW: i8 = -8;

pub fn ready(request: &Request) {
    preempted::means();
    let policy = request.get("policy").unwrap_or("round-robin");
    let wakes = request.value("wakes", 200);
    let variant = Variant::of(request);
    let looping: Arc<[Looping]> =
        (0..request.value("busy", BUSY)).map(|_| Looping::default()).collect();
    let busy: Vec<_> = (0..looping.len())
        .map(|i| {
            let looping = looping.clone();
            variant.above(BELOW).spawn(move || (looping[i].run(), looping[i].chunks()))
        })
        .collect();
    let switches = || runtime::metrics().map_or(0, |m| m.preempted + m.stood_aside);
    let before = switches();
    // This microprocess waits, so it is woken from outside of the computing VPs.
    let by_timer = by_timer(wakes);
    let by_thread = by_thread(wakes);
    let preempted = switches() - before;
    let begun = looping.iter().filter(|one| one.chunks() > 0).count();
    looping.iter().for_each(Looping::end);
    for one in busy {
        let (right, all) = one.join().expect("no panic");
        assert_eq!(right, all, "chunks computed right");
    }
    assert!(begun > 0, "no busy microprocess ran");
    for (by, late) in [("timer", by_timer), ("thread", by_thread)] {
        assert_eq!(late.len(), wakes as u64);
        let keys = format!(
            "policy={policy} by={by} begun:={begun} preempted:={preempted} p50:={:.1}",
            late.us(0.5)
        );
        sample("ready_p99", late.us(0.99), "us", &keys);
    }
}

/// Measures from the deadline on.
fn by_timer(wakes: usize) -> Lateness {
    let mut late = Lateness::default();
    for _ in 0..wakes {
        let deadline = Instant::now() + Duration::from_millis(1);
        thread::sleep_until(deadline);
        late.woke(deadline);
    }
    late
}

/// Measures from the wake-up by a kernel thread on.
fn by_thread(wakes: usize) -> Lateness {
    let at = Arc::new(AtomicU64::new(0));
    let (caused, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let waiting = thread::current();
    let (when, turn, done) = (at.clone(), caused.clone(), seen.clone());
    let kernel_thread = std::thread::spawn(move || {
        for n in 1..=wakes {
            std::thread::sleep(Duration::from_millis(1));
            when.store(now_ns(), Release);
            turn.store(n, Release);
            waiting.unpark();
            while done.load(Acquire) < n {
                std::thread::park();
            }
        }
    });
    let mut late = Lateness::default();
    for n in 1..=wakes {
        while caused.load(Acquire) < n {
            thread::park();
        }
        late.record(Duration::from_nanos(now_ns().saturating_sub(at.load(Acquire))));
        seen.store(n, Release);
        kernel_thread.thread().unpark();
    }
    // The thread is finished. If it waits for a core, it must not occupy a VP meanwhile.
    thread::blocking(|| kernel_thread.join()).expect("no panic");
    late
}
