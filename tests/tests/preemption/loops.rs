//! An endless loop stalls nobody.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo::net::UnixStream;
use kumihimo::policy::{Priority, RoundRobin};
use kumihimo::runtime::{NoEvents, Runtime, metrics};
use kumihimo::sync::SpinLock;
use kumihimo::thread;
use kumihimo_tests::process::{alone, has_vps, is_preempted, tells_returns};

use crate::pair::{pair, serve_on};

/// Runs until `stop`, without a call of anything.
fn spin(stop: &AtomicBool) -> u64 {
    let mut n = 0u64;
    while !stop.load(Relaxed) {
        n = n.wrapping_mul(31).wrapping_add(7);
    }
    n
}

/// Of the calling kernel thread.
fn cpu_time() -> Duration {
    // SAFETY: all zeros is a valid timespec; a live one to be written.
    unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        assert_eq!(libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now), 0);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }
}

#[test]
fn endless_loop_gives_way_to_its_equals() {
    const NAME: &str = "loops::endless_loop_gives_way_to_its_equals";
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
                    // Its turn comes round again and again.
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

/// A lone microprocess is not interrupted without a reason; and a later one, however it comes, does
/// not wait for ever.
#[test]
fn lone_microprocess_is_not_preempted_until_another_is_runnable() {
    const NAME: &str = "loops::lone_microprocess_is_not_preempted_until_another_is_runnable";
    alone(NAME, || {
        if !has_vps(NAME) || !is_preempted(NAME) {
            return;
        }
        const QUANTUM: Duration = Duration::from_millis(1);
        // Long enough for some hundred quanta. By the kernel thread's own time: under load it may
        // not run for most of it.
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
            // Not how often it was rung for: a thread that gets no core for a while is rung for
            // again, and hears it once.
            let interrupted = || metrics().map(|m| m.preempted + m.stood_aside).expect("it runs");
            let before = interrupted();
            computes();
            let for_nobody = interrupted() - before;
            assert!(for_nobody <= 5, "{for_nobody} times for nobody");
            // By its own hand, without a switch.
            let stop = AtomicBool::new(false);
            thread::scope(|s| {
                s.spawn(|| stop.store(true, Relaxed));
                spin(&stop);
            });
            // From elsewhere.
            let stop = AtomicBool::new(false);
            let flag = &stop;
            thread::scope(|s| {
                let spins = s.spawn(|| {
                    computes();
                    spin(flag)
                });
                s.spawn(|| {
                    thread::sleep(QUANTUM * 50);
                    // By a descriptor, from a kernel thread.
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

#[test]
fn descriptors_and_timers_beside_a_loop() {
    const NAME: &str = "loops::descriptors_and_timers_beside_a_loop";
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

/// On one VP a spinner for a holder that sleeps, or was preempted, would keep it from ever coming
/// back.
#[test]
fn spinner_gives_way_while_the_holder_does_not_run() {
    alone("loops::spinner_gives_way_while_the_holder_does_not_run", || {
        // No quantum ends: only the waiters' own giving way lets the holder run.
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
                                // In the kernel, or only to others: away with the lock.
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

/// A microprocess that comes back from the kernel waits for its turn beside those that compute,
/// however long that takes: no more compute at a time than there are virtual processors. (They went
/// on without after 10 ms.)
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

/// A microprocess that went on without a virtual processor that was held up comes back to it when
/// it is well again.
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
                // What must not be done: in the kernel with the virtual processor, until the other
                // one has lost its patience.
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

/// The timekeeper is a spare kernel thread like the others, and ends if there are too many: another
/// one goes on with it. (None did.)
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
                // As long as it takes for a spare to be too many.
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
                        // And for it to end.
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

/// Detects microprocesses that compute at the same time, by how often they alternate.
#[derive(Default)]
struct Turns {
    last: AtomicU64,
    changes: AtomicU64,
}

impl Turns {
    /// As [`spin`], by number `me`.
    fn spin(&self, me: u64, stop: &AtomicBool) {
        while !stop.load(Relaxed) {
            if self.last.load(Relaxed) != me {
                self.last.store(me, Relaxed);
                self.changes.fetch_add(1, Relaxed);
            }
        }
    }

    /// Waits until one microprocess computes at a time. Two at the same time would alternate far
    /// more often than the VP changes hands.
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
            // One change may belong to a hand-off before the first reading.
            if (1..=passed_on() - before + 1).contains(&changes) {
                return;
            }
        }
    }
}

/// A child of fork has its parent's descriptors, the clocks among them: they tick no more for
/// kernel threads that have ended. (One did, in the last instructions of such a kernel thread: a
/// crash.)
#[test]
fn kernel_threads_end_while_children_have_their_clocks() {
    const NAME: &str = "loops::kernel_threads_end_while_children_have_their_clocks";
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
                        // SAFETY: the child calls what signal-safety(7) allows.
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
                // SAFETY: a live word to be written.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0);
            }
        }
    });
}

/// The timekeeper rests while nothing runs. A neighbour on the machine is a reason to look up now
/// and then, and none to sleep on when a loop begins.
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
                    // Nobody else ends it.
                    thread::sleep(Duration::from_millis(1));
                    stop.store(true, Relaxed);
                });
            }
        });
    });
}
