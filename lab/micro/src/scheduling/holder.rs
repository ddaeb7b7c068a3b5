//! `spin-holder`: a spin lock whose holder sometimes sleeps in the kernel, or computes beyond the
//! end of its quantum; and the behaviour of its waiters. `lock=with`: Kumihimo's lock, whose
//! waiters yield; `lock=without`: a plain lock that does not consider which threads run.

use std::cell::UnsafeCell;
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::time::{Duration, Instant};

use kumihimo::runtime;
use kumihimo::sync::{Barrier, SpinLock};
use kumihimo_bench_kit::work::{INSIDE, OUTSIDE, spin};
use kumihimo_bench_kit::{Request, sample};

use super::preempted;
use crate::variant::Variant;

/// Contenders for each VP.
const CONTENDERS: usize = 4;
/// Microprocesses with other work for each VP.
const OTHERS: usize = 1;
/// Number of sections of each contender.
const ROUNDS: usize = 2_000;
/// One section in this many sleeps in the kernel; and the duration of the sleep.
const ASLEEP_EVERY: usize = 50;
const ASLEEP: Duration = Duration::from_micros(200);
/// One section in this many computes until it has been preempted, if another microprocess is
/// runnable.
const LONG_EVERY: usize = 500;
const LONG: Duration = Duration::from_millis(2);
/// Quantum of the policy, shorter than a long section.
pub const QUANTUM: Duration = Duration::from_millis(1);
/// Rounds of one piece of other work.
const PIECE: u32 = 1_000;

/// A spin lock.
trait Lock: Send + Sync + 'static {
    fn new() -> Self;
    /// Runs `body` while holding the lock.
    fn with(&self, body: impl FnOnce(&mut u64));
}

impl Lock for SpinLock<u64> {
    fn new() -> Self {
        SpinLock::new(0)
    }

    fn with(&self, body: impl FnOnce(&mut u64)) {
        body(&mut self.lock());
    }
}

/// A textbook spin lock.
struct Plain {
    locked: AtomicBool,
    value: UnsafeCell<u64>,
}

// SAFETY: only the thread that has set `locked` accesses the value.
unsafe impl Sync for Plain {}

impl Lock for Plain {
    fn new() -> Self {
        Plain { locked: AtomicBool::new(false), value: UnsafeCell::new(0) }
    }

    fn with(&self, body: impl FnOnce(&mut u64)) {
        while self.locked.swap(true, Acquire) {
            while self.locked.load(Relaxed) {
                spin_loop();
            }
        }
        // SAFETY: the lock is held. After a panic in `body` it stays held, so no other thread
        // enters.
        body(unsafe { &mut *self.value.get() });
        self.locked.store(false, Release);
    }
}

pub fn spin_holder(request: &Request) {
    let which = request.get("lock").unwrap_or("with");
    match which {
        "with" => contend::<SpinLock<u64>>(request, which),
        "without" => contend::<Plain>(request, which),
        other => panic!("lock={other}: expected with or without"),
    }
}

fn contend<L: Lock>(request: &Request, which: &str) {
    preempted::means();
    let rounds: usize = request.value("rounds", ROUNDS);
    let (contenders, others) = (CONTENDERS * request.vps, OTHERS * request.vps);
    let variant = Variant::of(request);
    let lock = Arc::new(L::new());
    let over = Arc::new(AtomicBool::new(false));
    let pieces = Arc::new(AtomicU64::new(0));
    let gate = Arc::new(Barrier::new(contenders + others + 1));
    let beside: Vec<_> = (0..others)
        .map(|_| {
            let (over, pieces, gate) = (over.clone(), pieces.clone(), gate.clone());
            variant.spawn(move || {
                gate.wait();
                let (right, mut wrong) = (spin(1, PIECE), 0u64);
                while !over.load(Relaxed) {
                    wrong += u64::from(spin(black_box(1), PIECE) != right);
                    pieces.fetch_add(1, Relaxed);
                }
                wrong
            })
        })
        .collect();
    let contending: Vec<_> = (0..contenders)
        .map(|seed| {
            let (lock, gate) = (lock.clone(), gate.clone());
            variant.spawn(move || {
                gate.wait();
                let mut own = seed as u64 + 1;
                for n in 1..=rounds {
                    lock.with(|count| {
                        *count += 1;
                        section(seed + n);
                    });
                    own = spin(own, OUTSIDE);
                }
                black_box(own);
            })
        })
        .collect();
    let before = runtime::metrics().expect("a runtime runs");
    let start = Instant::now();
    gate.wait();
    for one in contending {
        one.join().expect("no panic");
    }
    let seconds = start.elapsed().as_secs_f64();
    let other_work = pieces.load(Relaxed) as f64 / seconds;
    over.store(true, Relaxed);
    let wrong: u64 = beside.into_iter().map(|one| one.join().expect("no panic")).sum();
    assert_eq!(wrong, 0, "pieces computed wrongly");
    let mut sections = 0;
    lock.with(|count| sections = *count);
    assert_eq!(sections, (contenders * rounds) as u64, "sections must exclude each other");
    let after = runtime::metrics().expect("a runtime runs");
    let preempted = after.preempted + after.stood_aside - before.preempted - before.stood_aside;
    let keys = format!(
        "lock={which} preempted:={preempted} hand_offs:={}",
        after.hand_offs - before.hand_offs
    );
    sample("ops", sections as f64 / seconds, "1/s", &keys);
    sample("other_work", other_work, "1/s", &keys);
}

/// A section, short in most cases.
fn section(number: usize) {
    if number.is_multiple_of(LONG_EVERY) {
        let start = Instant::now();
        while start.elapsed() < LONG {
            black_box(spin(1, PIECE));
        }
    } else if number.is_multiple_of(ASLEEP_EVERY) {
        // In the kernel: the VP continues without this microprocess.
        std::thread::sleep(ASLEEP);
    } else {
        black_box(spin(1, INSIDE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_locks_are_exclusive() {
        fn count<L: Lock>() -> u64 {
            let lock = L::new();
            std::thread::scope(|s| {
                for _ in 0..2 {
                    s.spawn(|| (0..1_000).for_each(|_| lock.with(|n| *n += 1)));
                }
            });
            let mut seen = 0;
            lock.with(|n| seen = *n);
            seen
        }
        assert_eq!([count::<Plain>(), count::<SpinLock<u64>>()], [2_000; 2]);
    }

    #[test]
    fn every_run_has_long_and_sleeping_holders() {
        let all: Vec<usize> = (1..=ROUNDS).collect();
        let long = all.iter().filter(|n| n.is_multiple_of(LONG_EVERY)).count();
        let asleep = all.iter().filter(|n| n.is_multiple_of(ASLEEP_EVERY)).count();
        assert!(long > 0 && asleep > long && QUANTUM < LONG);
    }
}
