//! Counters of microprocesses ([`kumihimo::observe`]), for programs whose numbers are known.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kumihimo::observe::{self, Counters};
use kumihimo::runtime::Runtime;
use kumihimo::sync::{Mutex, mpsc};
use kumihimo::thread::{self, Thread};
use kumihimo_tests::process::one_to_one;
use kumihimo_tests::skip;

fn counters(of: &Thread) -> Counters {
    let id = of.id().resource().expect("it is a microprocess");
    observe::counters(id).expect("it lives")
}

fn waits(of: &Thread) -> Vec<(&'static str, u64)> {
    counters(of).waits.iter().map(|waits| (waits.kind, waits.count)).collect()
}

/// Runs `f` on one VP, where the order of microprocesses is known. A process has one runtime at a
/// time.
fn on_one_vp(f: impl FnOnce() + Send + 'static) {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let test = std::thread::current().name().expect("libtest names it").to_owned();
    Runtime::builder().vps(1).build().expect("a runtime").run(move || {
        if one_to_one() {
            return skip(&test, "microprocesses are kernel threads, without counters");
        }
        f();
    });
}

fn yield_times(n: usize) {
    (0..n).for_each(|_| thread::yield_now());
}

#[test]
fn each_kind_of_wait_is_counted() {
    on_one_vp(|| {
        let (to, from) = mpsc::channel();
        let mutex = Arc::new(Mutex::new(()));
        let held = mutex.clone();
        let worker = thread::spawn(move || {
            for _ in 0..5 {
                thread::park();
            }
            for _ in 0..3 {
                from.recv().expect("a message");
            }
            drop(held.lock());
            thread::sleep(Duration::from_millis(1));
            thread::park();
        });
        let of = worker.thread().clone();
        for n in 0..5 {
            yield_times(2);
            assert_eq!(waits(&of), if n == 0 { vec![] } else { vec![("unpark", n)] });
            of.unpark();
        }
        for _ in 0..3 {
            yield_times(2);
            to.send(()).expect("it receives");
        }
        let guard = mutex.lock();
        yield_times(2);
        drop(guard);
        while waits(&of).len() < 4 {
            thread::yield_now();
        }
        let want = [("unpark", 5), ("channel", 3), ("mutex", 1), ("clock", 1)];
        assert_eq!(waits(&of), want);
        // Each wait is one switch, and it yields nowhere. It waits once more now.
        yield_times(1);
        assert_eq!(counters(&of).switches, 11);
        assert_eq!(counters(&of).preemptions, 0);
        of.unpark();
        worker.join().expect("no panic");
    });
}

#[test]
fn time_of_a_wait_is_that_until_it_runs() {
    const SLEEP: Duration = Duration::from_millis(30);
    on_one_vp(|| {
        let begun = Instant::now();
        // The VP reads the clock where it idles. No wait begins before that reading.
        thread::sleep(Duration::from_millis(1));
        let worker = thread::spawn(|| (0..2).for_each(|_| thread::park()));
        let of = worker.thread().clone();
        while counters(&of).switches == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(SLEEP);
        of.unpark();
        while waits(&of).is_empty() {
            thread::yield_now();
        }
        let waited = counters(&of).waits[0].time;
        assert!((SLEEP..=begun.elapsed()).contains(&waited), "{waited:?}");
        of.unpark();
        worker.join().expect("no panic");
    });
}

#[test]
fn wake_ups_are_timed() {
    on_one_vp(|| {
        let worker = thread::spawn(|| (0..50).for_each(|_| thread::park()));
        let of = worker.thread().clone();
        for _ in 0..49 {
            // The VP reads the clock where it idles, and then times its next wake-up.
            thread::sleep(Duration::from_millis(1));
            of.unpark();
        }
        thread::sleep(Duration::from_millis(1));
        let counters = counters(&of);
        assert!(counters.timed_wakes > 0, "{counters:?}");
        assert!(counters.wake_latency > Duration::ZERO, "{counters:?}");
        of.unpark();
        worker.join().expect("no panic");
    });
}

#[test]
fn yields_are_switches_and_no_preemptions() {
    on_one_vp(|| {
        let worker = thread::spawn(|| {
            yield_times(100);
            thread::park();
        });
        while waits(worker.thread()).is_empty() && counters(worker.thread()).switches < 101 {
            thread::yield_now();
        }
        let counters = counters(worker.thread());
        assert_eq!((counters.switches, counters.preemptions), (101, 0));
        worker.thread().unpark();
        worker.join().expect("no panic");
    });
}

#[test]
fn next_life_of_a_record_starts_at_zero() {
    on_one_vp(|| {
        for _ in 0..3 {
            let worker = thread::spawn(|| {
                thread::park();
                thread::park();
            });
            let of = worker.thread().clone();
            yield_times(2);
            of.unpark();
            yield_times(2);
            assert_eq!(waits(&of), [("unpark", 1)]);
            assert_eq!(counters(&of).switches, 2);
            of.unpark();
            worker.join().expect("no panic");
        }
    });
}

#[test]
fn stack_in_use_grows_with_its_frames() {
    fn deep(n: usize) {
        let frame = black_box([n as u8; 256]);
        if n == 0 {
            thread::park()
        } else {
            deep(n - 1)
        }
        black_box(frame);
    }
    on_one_vp(|| {
        let depth = |n| {
            let worker = thread::spawn(move || deep(n));
            yield_times(2);
            let depth = counters(worker.thread()).stack_in_use.expect("it waits");
            worker.thread().unpark();
            worker.join().expect("no panic");
            depth
        };
        let (shallow, deep) = (depth(0), depth(20));
        assert!(deep >= shallow + 20 * 256, "{shallow} {deep}");
    });
}

#[test]
fn ended_microprocess_has_no_counters() {
    on_one_vp(|| {
        let worker = thread::spawn(|| ());
        let id = worker.thread().id().resource().expect("it is a microprocess");
        worker.join().expect("no panic");
        assert_eq!(observe::counters(id), None);
    });
}

/// Computes for a number of steps of equal work.
fn compute(steps: u64) {
    for step in 0..steps {
        black_box(step);
    }
}

/// Number of steps that take about the CPU time `time`.
fn steps_of(time: Duration) -> u64 {
    const STEPS: u64 = 1 << 22;
    let begun = cpu_time();
    compute(STEPS);
    (STEPS as f64 * time.as_secs_f64() / (cpu_time() - begun).as_secs_f64()) as u64
}

/// CPU time of the kernel thread. A lone microprocess that only computes stays on the same one.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).expect("a time after its start")
}

/// Runs three microprocesses on one VP that compute in turn, for 70, 20 and 10 percent of the work,
/// until they have used the CPU time `total`. Returns the largest difference between a share of the
/// work and that of the CPU time, in points.
///
/// The work is counted, not timed, because the kernel may run other threads on the core. It varies
/// from turn to turn, so that it has no period in common with the kernel's time slices.
fn deviation(part: Duration, total: Duration) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let steps = steps_of(part);
    let workers = [7, 2, 1].map(|parts| {
        let stop = stop.clone();
        thread::spawn(move || {
            let (mut done, mut random) = (0, 1u64);
            while !stop.load(Ordering::Relaxed) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let turn = parts * (steps / 2 + (random >> 32) % steps);
                compute(turn);
                done += turn;
                thread::yield_now();
            }
            thread::park();
            done
        })
    });
    let cpu = loop {
        thread::sleep(Duration::from_millis(50));
        let cpu = workers.each_ref().map(|one| counters(one.thread()).cpu.as_secs_f64());
        // On a busy machine a second has few samples, but a second of CPU time has enough of them.
        if cpu.iter().sum::<f64>() >= total.as_secs_f64() {
            break cpu;
        }
    };
    stop.store(true, Ordering::Relaxed);
    let work = workers.map(|worker| {
        worker.thread().unpark();
        worker.join().expect("no panic") as f64
    });
    let share = |of: &[f64; 3], n: usize| of[n] / of.iter().sum::<f64>() * 100.0;
    eprintln!("CPU time {cpu:?}, work {work:?}");
    (0..3).map(|n| (share(&cpu, n) - share(&work, n)).abs()).fold(0.0, f64::max)
}

/// Whether the timekeeper can sample.
fn samples() -> bool {
    kumihimo::runtime::metrics().is_some_and(|metrics| metrics.preemption != "off")
}

#[test]
fn sampled_cpu_time_is_divided_as_it_was_used() {
    on_one_vp(|| {
        if samples() {
            // A round of 10 ms is two intervals of the samples. Their standard error is 1 point.
            let deviation = deviation(Duration::from_millis(1), Duration::from_secs(10));
            assert!(deviation <= 5.0, "{deviation} points");
        }
    });
}

#[test]
fn exact_cpu_time_is_divided_as_it_was_used() {
    on_one_vp(|| {
        let before = observe::account(true);
        // Far more switches than samples: each run takes some microseconds.
        let deviation = deviation(Duration::from_micros(100), Duration::from_secs(2));
        observe::account(before);
        assert!(deviation <= 5.0, "{deviation} points");
    });
}

#[test]
fn turn_without_end_counts_under_exact_accounting() {
    for is_on_before in [true, false] {
        on_one_vp(move || {
            if !samples() {
                return;
            }
            let before = observe::account(is_on_before);
            let stop = Arc::new(AtomicBool::new(false));
            let stopped = stop.clone();
            let worker = thread::spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let of = worker.thread().clone();
            // The worker computes alone meanwhile, and has no reason to switch.
            thread::blocking(move || {
                let growth_of = |time: Duration| {
                    let begun = counters(&of).cpu;
                    while counters(&of).cpu < begun + time {
                        std::thread::yield_now();
                    }
                };
                growth_of(Duration::from_millis(1));
                observe::account(true);
                growth_of(Duration::from_millis(100));
            });
            observe::account(before);
            stop.store(true, Ordering::Relaxed);
            worker.join().expect("no panic");
        });
    }
}
