//! An endless loop stalls no other microprocess.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo::net::UnixStream;
use kumihimo::policy::{Priority, RoundRobin};
use kumihimo::runtime::{NoEvents, Runtime, metrics};
use kumihimo::sync::SpinLock;
use kumihimo::thread;
use kumihimo_tests::place::Place;
use kumihimo_tests::process::{
    alone, alone_with, has_vps, is_child, is_preempted, start, tells_returns,
};

use crate::pair::{pair, serve_on};

/// Runs until `stop` is set, without any function call.
fn spin(stop: &AtomicBool) -> u64 {
    let mut n = 0u64;
    while !stop.load(Relaxed) {
        n = n.wrapping_mul(31).wrapping_add(7);
    }
    n
}

/// CPU time of the calling kernel thread.
fn cpu_time() -> Duration {
    // SAFETY: an all-zero timespec is valid and writable.
    unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        assert_eq!(libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now), 0);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }
}

#[test]
fn endless_loop_yields_to_equal_priorities() {
    const NAME: &str = "loops::endless_loop_yields_to_equal_priorities";
    alone(NAME, || {
        if !is_preempted(NAME) {
            return;
        }
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
            thread::scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| {
                        while !stop.load(Relaxed) {
                            turns.fetch_add(1, Relaxed);
                        }
                    });
                }
                s.spawn(|| {
                    // This microprocess gets its turn repeatedly.
                    for _ in 0..5 {
                        thread::sleep(Duration::from_millis(1));
                    }
                    stop.store(true, Relaxed);
                });
                spin(&stop);
            });
            assert!(turns.into_inner() > 0);
        });
    });
}

/// A lone microprocess is not interrupted. Another one that becomes runnable later, in any way,
/// does not wait indefinitely.
#[test]
fn lone_microprocess_is_not_preempted_until_another_is_runnable() {
    const NAME: &str = "loops::lone_microprocess_is_not_preempted_until_another_is_runnable";
    alone(NAME, || {
        if !has_vps(NAME) || !is_preempted(NAME) {
            return;
        }
        const QUANTUM: Duration = Duration::from_millis(1);
        // Enough for some hundred quanta, in the kernel thread's CPU time, because it may not run
        // most of the time under load.
        let computes = || {
            let (begin, mut n) = (cpu_time(), 0u64);
            while cpu_time() - begin < 200 * QUANTUM {
                n = (0..100_000)
                    .fold(n, |n, i| std::hint::black_box(n.wrapping_mul(31).wrapping_add(i)));
            }
            n
        };
        let policy = kumihimo::policy::RoundRobin::with_quantum(QUANTUM);
        let runtime = Runtime::builder().vps(1).policy(policy).build().expect("a runtime");
        runtime.run(|| {
            let (mut here, mut there) = UnixStream::pair().expect("a pair");
            // The number of rings is not counted: a thread without a core is rung repeatedly, but
            // handles only one ring.
            let interrupted = || metrics().map(|m| m.preempted + m.stood_aside).expect("it runs");
            let before = interrupted();
            computes();
            let for_nobody = interrupted() - before;
            assert!(for_nobody <= 5, "{for_nobody} interruptions without another microprocess");
            // Made runnable by the computing microprocess itself, without a switch.
            let stop = AtomicBool::new(false);
            thread::scope(|s| {
                s.spawn(|| stop.store(true, Relaxed));
                spin(&stop);
            });
            // Made runnable by another thread.
            let stop = AtomicBool::new(false);
            let flag = &stop;
            thread::scope(|s| {
                let spins = s.spawn(|| {
                    computes();
                    spin(flag)
                });
                s.spawn(|| {
                    thread::sleep(QUANTUM * 50);
                    // Made runnable by a descriptor, from a kernel thread.
                    there.read_exact(&mut [0]).expect("a byte");
                    flag.store(true, Relaxed);
                });
                thread::blocking(|| {
                    std::thread::sleep(QUANTUM * 300);
                    here.write_all(b"x").expect("it is taken");
                });
                spins.join().expect("it ends");
            });
        });
    });
}

/// How often each thread of this process other than the calling one has waited.
fn waits_of_others() -> HashMap<String, u64> {
    // SAFETY: takes nothing.
    let own = unsafe { libc::gettid() }.to_string();
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc").flatten();
    let waits = tasks.filter_map(|task| {
        let name = task.file_name().into_string().expect("a number");
        // One that ends meanwhile has no status.
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        (name != own).then(|| (name, line.and_then(|n| n.trim().parse().ok()).expect("a number")))
    });
    waits.collect()
}

/// Computes for a while on one VP. Asserts that other threads of this process hardly run meanwhile.
fn compute_undisturbed() {
    let policy = RoundRobin::with_quantum(Duration::from_micros(250));
    Runtime::builder().vps(1).policy(policy).build().expect("a runtime").run(|| {
        let (begin, mut before) = (Instant::now(), None);
        while begin.elapsed() < Duration::from_millis(300) {
            std::hint::black_box((0..100_000_u64).fold(1, u64::wrapping_mul));
            // It counts as alone from the end of its first quantum on.
            if before.is_none() && begin.elapsed() > Duration::from_millis(50) {
                before = Some((Instant::now(), waits_of_others()));
            }
        }
        let (since, before) = before.expect("it was read");
        // Some may have ended, or begun.
        let since_before = |(name, now): (&String, &u64)| now - before.get(name).unwrap_or(&0);
        let looks: u64 = waits_of_others().iter().map(since_before).sum();
        let most = since.elapsed().as_millis() as u64;
        assert!(looks <= most, "{looks} waits in {most} ms");
    });
}

/// A look costs what shares the core with the timekeeper two switches of kernel threads.
#[test]
fn lone_microprocess_is_looked_at_seldom() {
    const NAME: &str = "loops::lone_microprocess_is_looked_at_seldom";
    // Other tests at a shared board could have other levels.
    alone_with(NAME, &[("KUMI_ARBITER", "none")], || {
        if has_vps(NAME) && is_preempted(NAME) {
            compute_undisturbed();
        }
    });
}

#[test]
fn idle_neighbour_makes_no_difference() {
    const NAME: &str = "loops::idle_neighbour_makes_no_difference";
    const IS_NEIGHBOUR: &str = "KUMI_TEST_IS_NEIGHBOUR";
    if is_child(NAME) && std::env::var_os(IS_NEIGHBOUR).is_some() {
        return Runtime::builder().build().expect("a runtime").run(|| {
            println!("it runs");
            let mut told = String::new();
            thread::blocking(|| std::io::stdin().read_line(&mut told)).expect("the end");
        });
    }
    let place = Place::new("neighbour");
    let board = place.0.join("board");
    let arbiter = ("KUMI_ARBITER", board.to_str().expect("a path"));
    let neighbour = (!is_child(NAME)).then(|| {
        let mut child = start(NAME, &[arbiter, (IS_NEIGHBOUR, "1")]);
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert!(lines.any(|line| line.expect("text").contains("it runs")));
        (child, lines)
    });
    alone_with(NAME, &[arbiter], || {
        if has_vps(NAME) && is_preempted(NAME) {
            compute_undisturbed();
        }
    });
    if let Some((mut neighbour, rest)) = neighbour {
        drop(neighbour.stdin.take());
        rest.for_each(drop);
        assert!(neighbour.wait().expect("it can be waited for").success());
    }
}

#[test]
fn descriptors_and_timers_work_beside_a_loop() {
    const NAME: &str = "loops::descriptors_and_timers_work_beside_a_loop";
    alone(NAME, || {
        if !is_preempted(NAME) {
            return;
        }
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let stop = AtomicBool::new(false);
            let (mut here, mut there) = UnixStream::pair().expect("a pair");
            thread::scope(|s| {
                s.spawn(|| spin(&stop));
                s.spawn(move || {
                    let mut byte = [0];
                    while there.read(&mut byte).expect("a byte") == 1 {
                        there.write_all(&byte).expect("it is taken");
                    }
                });
                for n in 0..100u8 {
                    here.write_all(&[n]).expect("it is taken");
                    let mut byte = [0];
                    here.read_exact(&mut byte).expect("it comes back");
                    assert_eq!(byte[0], n);
                    thread::sleep(Duration::from_micros(100));
                }
                stop.store(true, Relaxed);
                drop(here);
            });
        });
    });
}

/// The lock's holder sleeps or was preempted. On one VP, waiters that spin without yielding would
/// keep it from ever running.
#[test]
fn spinner_gives_way_while_the_holder_does_not_run() {
    alone("loops::spinner_gives_way_while_the_holder_does_not_run", || {
        // No quantum ends: the holder runs only because the waiters yield.
        let runtime = Runtime::builder().vps(1).policy(kumihimo::policy::FixedPriority);
        runtime.build().expect("a runtime").run(|| {
            let lock = SpinLock::new(0);
            thread::scope(|s| {
                for level in [10, 32, 50] {
                    let lock = &lock;
                    let priority = Priority::new(level).expect("a priority");
                    let work = move || {
                        for n in 0..20 {
                            let mut count = lock.lock();
                            if n % 4 == 0 {
                                // Block in the kernel, or only yield, while holding the lock.
                                std::thread::sleep(Duration::from_millis(1));
                            } else {
                                thread::yield_now();
                            }
                            *count += 1;
                        }
                    };
                    thread::Builder::new()
                        .priority(priority)
                        .spawn_scoped(s, work)
                        .expect("it begins");
                }
            });
            assert_eq!(lock.into_inner(), 60);
        });
    });
}

/// A microprocess that returns from the kernel waits for its turn beside computing ones, however
/// long that takes: at most as many compute at a time as there are virtual processors.
#[test]
fn returning_threads_wait_for_their_turn() {
    const NAME: &str = "loops::returning_threads_wait_for_their_turn";
    alone(NAME, || {
        if !tells_returns(NAME) || !is_preempted(NAME) {
            return;
        }
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let (stop, back, turns) = (AtomicBool::new(false), AtomicU64::new(0), Turns::default());
            thread::scope(|s| {
                for me in 1..=6 {
                    let (stop, back, turns) = (&stop, &back, &turns);
                    s.spawn(move || {
                        std::thread::sleep(Duration::from_millis(20));
                        back.fetch_add(1, Relaxed);
                        turns.spin(me, stop)
                    });
                }
                thread::blocking(|| {
                    while back.load(Relaxed) < 6 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    turns.await_one_at_a_time();
                    stop.store(true, Relaxed);
                });
            });
        });
    });
}

/// A microprocess that continued without a virtual processor, because its VP did not respond,
/// returns to the VP when it responds again.
#[test]
fn thread_that_continued_without_a_vp_returns_to_it() {
    const NAME: &str = "loops::thread_that_continued_without_a_vp_returns_to_it";
    alone(NAME, || {
        if !tells_returns(NAME) || !is_preempted(NAME) {
            return;
        }
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let (stop, back, turns) =
                (AtomicBool::new(false), AtomicBool::new(false), Turns::default());
            thread::scope(|s| {
                s.spawn(|| {
                    std::thread::sleep(Duration::from_millis(5));
                    back.store(true, Relaxed);
                    turns.spin(1, &stop)
                });
                thread::yield_now();
                // Misbehaviour: block in the kernel with the virtual processor masked, until the
                // returning thread's time limit has passed.
                let quiet = NoEvents::new();
                while !back.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                drop(quiet);
                s.spawn(|| turns.spin(2, &stop));
                thread::blocking(|| {
                    turns.await_one_at_a_time();
                    stop.store(true, Relaxed);
                });
            });
        });
    });
}

/// The timekeeper is a spare kernel thread, which ends if there are too many spares. Another kernel
/// thread must then take over its task.
#[test]
fn timekeeper_is_replaced_when_it_ends() {
    const NAME: &str = "loops::timekeeper_is_replaced_when_it_ends";
    alone(NAME, || {
        if !has_vps(NAME) || !is_preempted(NAME) {
            return;
        }
        let policy = RoundRobin::with_quantum(Duration::from_millis(1));
        Runtime::builder().vps(1).policy(policy).build().expect("a runtime").run(|| {
            let preempted = || metrics().map_or(0, |now| now.preempted + now.stood_aside);
            for _ in 0..5 {
                // Long enough for a spare to become superfluous.
                thread::blocking(|| std::thread::sleep(Duration::from_millis(150)));
                let over = AtomicBool::new(false);
                thread::scope(|s| {
                    s.spawn(|| spin(&over));
                    s.spawn(|| {
                        let compute = || {
                            std::hint::black_box(
                                (0..1_000u64).fold(1, |a, b| std::hint::black_box(a ^ b)),
                            )
                        };
                        // Long enough for the superfluous spare to end.
                        let since = Instant::now();
                        while since.elapsed() < Duration::from_millis(250) {
                            compute();
                        }
                        let before = preempted();
                        while preempted() < before + 3 {
                            compute();
                        }
                        over.store(true, Relaxed);
                    });
                });
            }
        });
    });
}

/// Detects microprocesses that compute at the same time by the number of their alternations.
#[derive(Default)]
struct Turns {
    last: AtomicU64,
    changes: AtomicU64,
}

impl Turns {
    /// As [`spin`], for microprocess number `me`.
    fn spin(&self, me: u64, stop: &AtomicBool) {
        while !stop.load(Relaxed) {
            if self.last.load(Relaxed) != me {
                self.last.store(me, Relaxed);
                self.changes.fetch_add(1, Relaxed);
            }
        }
    }

    /// Waits until only one microprocess computes at a time. Two concurrent ones alternate far more
    /// often than the VP changes hands.
    fn await_one_at_a_time(&self) {
        const AT_LEAST: u64 = 20;
        let passed_on = || {
            let now = metrics().expect("it runs");
            now.hand_offs + now.vps.iter().map(|vp| vp.switches).sum::<u64>()
        };
        loop {
            let (changes, before) = (self.changes.load(Relaxed), passed_on());
            while passed_on() - before < AT_LEAST {
                std::thread::sleep(Duration::from_millis(1));
            }
            let changes = self.changes.load(Relaxed) - changes;
            // One alternation may belong to a hand-off before the first reading.
            if (1..=passed_on() - before + 1).contains(&changes) {
                return;
            }
        }
    }
}

/// A forked child inherits its parent's descriptors, including preemption clocks. The clocks must
/// not signal kernel threads that have ended.
#[test]
fn inherited_preemption_clocks_do_not_signal_ended_threads() {
    const NAME: &str = "loops::inherited_preemption_clocks_do_not_signal_ended_threads";
    alone(NAME, || {
        if !has_vps(NAME) || !is_preempted(NAME) {
            return;
        }
        let quantum = kumihimo::policy::RoundRobin::with_quantum(Duration::ZERO);
        for _ in 0..10 {
            let runtime = Runtime::builder().vps(2).policy(quantum).build().expect("a runtime");
            let children: Vec<i32> = runtime.run(|| {
                let stop = AtomicBool::new(false);
                thread::scope(|s| {
                    for _ in 0..4 {
                        s.spawn(|| spin(&stop));
                    }
                    let children = (0..5).map(|_| {
                        thread::sleep(Duration::from_millis(1));
                        // SAFETY: the child makes only calls that signal-safety(7) allows.
                        match unsafe { libc::fork() } {
                            // SAFETY: as above.
                            0 => unsafe {
                                libc::usleep(200_000);
                                libc::_exit(0)
                            },
                            child => child,
                        }
                    });
                    let children = children.collect();
                    stop.store(true, Relaxed);
                    children
                })
            });
            for child in children {
                let mut status = 0;
                // SAFETY: a writable word.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
            }
        }
    });
}

/// The timekeeper rests while nothing runs. With another address space on the machine it wakes up
/// at times, and must not continue to rest when a loop begins.
#[test]
fn loop_that_starts_after_idling_is_preempted() {
    const NAME: &str = "loops::loop_that_starts_after_idling_is_preempted";
    if !has_vps(NAME) || !is_preempted(NAME) {
        return;
    }
    let neighbour = || Runtime::builder().vps(1).build().expect("a runtime").run(serve_on);
    pair(NAME, neighbour, || {
        let low = Priority::new(10).expect("a priority");
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            for _ in 0..150 {
                thread::sleep(Duration::from_millis(30));
                let stop = AtomicBool::new(false);
                thread::scope(|s| {
                    let spins =
                        thread::Builder::new().priority(low).spawn_scoped(s, || spin(&stop));
                    spins.expect("a microprocess");
                    // Only this microprocess ends the loop.
                    thread::sleep(Duration::from_millis(1));
                    stop.store(true, Relaxed);
                });
            }
        });
    });
}
