//! Priorities, policies and timers in a running runtime. Tests of an order use one VP, so that
//! nothing else affects the order.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use kumihimo::net::{Shutdown, UnixStream};
use kumihimo::policy::{Feedback, FixedPriority, Priority, RoundRobin};
use kumihimo::runtime::{BatchPolicy, Design, Events, ReadyOrder, Runtime, metrics};
use kumihimo::sync::{Mutex, OnceLock};
use kumihimo::thread::{self, Builder, JoinHandle};
use kumihimo_tests::process::{alone, kernel_threads, one_to_one};
use kumihimo_tests::{Random, seed, skip};

fn level(n: u8) -> Priority {
    Priority::new(n).expect("0 to 63")
}

/// Runs `body` at priority 63 on one VP, under each queue design. Without events: a page fault that
/// waits for the disk would count as a block, and the next microprocess would run first. `exact.rs`
/// tests the order with events, from a record of the blocks.
fn on_one_vp(name: &str, body: impl Fn() + Send + Sync + Copy) {
    for design in Design::ALL {
        let runtime = Runtime::builder()
            .vps(1)
            .queue(design)
            .policy(FixedPriority)
            .events(Events::Off)
            .build()
            .expect("a runtime");
        if one_to_one() {
            return skip(name, "the kernel does the scheduling");
        }
        runtime.run(|| {
            thread::current().set_priority(level(63));
            body();
        });
    }
}

/// Record of the order in which microprocesses ran.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<u64>>>);

impl Log {
    fn say(&self, what: u64) {
        self.0.lock().expect("not poisoned").push(what);
    }

    fn said(&self) -> Vec<u64> {
        self.0.lock().expect("not poisoned").clone()
    }
}

fn at<T: Send + 'static>(n: u8, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().priority(level(n)).spawn(f).expect("it begins")
}

fn join_all(all: Vec<JoinHandle<()>>) {
    for handle in all {
        handle.join().expect("no panic");
    }
}

#[test]
fn higher_priorities_run_first() {
    alone("higher_priorities_run_first", || {
        on_one_vp("higher_priorities_run_first", || {
            let (log, mut random) = (Log::default(), Random(seed()));
            let mut expected = Vec::new();
            let all = (0..300u64)
                .map(|n| {
                    // Below the spawning one, so that all are queued before the first runs.
                    let (priority, log) = (random.below(63), log.clone());
                    expected.push((63 - priority, n));
                    at(priority as u8, move || log.say(n))
                })
                .collect();
            join_all(all);
            expected.sort_unstable();
            assert_eq!(log.said(), expected.iter().map(|&(_, n)| n).collect::<Vec<_>>());
        });
    });
}

#[test]
fn queued_microprocess_moves_when_its_priority_changes() {
    alone("queued_microprocess_moves_when_its_priority_changes", || {
        on_one_vp("queued_microprocess_moves_when_its_priority_changes", || {
            let log = Log::default();
            let all: Vec<_> = [10, 20, 30, 40]
                .into_iter()
                .map(|n| {
                    let log = log.clone();
                    at(n, move || log.say(u64::from(n)))
                })
                .collect();
            all[0].thread().set_priority(level(35));
            all[3].thread().set_priority(level(5));
            assert_eq!(
                (all[0].thread().priority(), all[3].thread().priority()),
                (level(35), level(5))
            );
            join_all(all);
            assert_eq!(log.said(), [10, 30, 20, 40]);
        });
    });
}

#[test]
fn lowering_ones_own_priority_lets_others_run() {
    alone("lowering_ones_own_priority_lets_others_run", || {
        on_one_vp("lowering_ones_own_priority_lets_others_run", || {
            let log = Log::default();
            let all = [50, 10]
                .into_iter()
                .map(|n| {
                    let log = log.clone();
                    at(n, move || log.say(u64::from(n)))
                })
                .collect();
            thread::current().set_priority(level(30));
            log.say(30);
            thread::current().set_priority(level(63));
            join_all(all);
            assert_eq!(log.said(), [50, 30, 10]);
        });
    });
}

#[test]
fn waking_a_higher_priority_yields_to_it() {
    alone("waking_a_higher_priority_yields_to_it", || {
        on_one_vp("waking_a_higher_priority_yields_to_it", || {
            let log = Log::default();
            let (sleeper, waker) = (log.clone(), log.clone());
            let high = at(50, move || {
                thread::park();
                sleeper.say(2);
            });
            let thread = high.thread().clone();
            let low = at(20, move || {
                waker.say(1);
                thread.unpark();
                waker.say(3);
                drop(at(40, {
                    let waker = waker.clone();
                    move || waker.say(4)
                }));
                waker.say(5);
            });
            join_all(vec![low, high]);
            assert_eq!(log.said(), [1, 2, 3, 4, 5]);
        });
    });
}

#[test]
fn equals_take_turns() {
    alone("equals_take_turns", || {
        on_one_vp("equals_take_turns", || {
            let log = Log::default();
            let all = (0..4)
                .map(|n| {
                    let log = log.clone();
                    at(32, move || {
                        for _ in 0..20 {
                            log.say(n);
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            join_all(all);
            assert_eq!(log.said(), [0, 1, 2, 3].repeat(20));
        });
    });
}

/// The microprocess of medium priority would keep the lock's owner from running, and with it the
/// one of high priority.
#[test]
fn lock_holder_inherits_priority() {
    alone("lock_holder_inherits_priority", || {
        on_one_vp("lock_holder_inherits_priority", || {
            let (log, lock) = (Log::default(), Arc::new(Mutex::new(())));
            let (own, l) = (log.clone(), lock.clone());
            let (held, h) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (held_too, h_too) = (held.clone(), h.clone());
            let low = at(10, move || {
                let guard = l.lock().expect("not poisoned");
                held_too.store(true, SeqCst);
                while !h_too.load(SeqCst) {
                    thread::park();
                }
                own.say(10);
                drop(guard);
                thread::yield_now();
                own.say(11);
            });
            while !held.load(SeqCst) {
                thread::sleep(Duration::from_micros(50));
            }
            let own = log.clone();
            let high = at(50, move || {
                drop(lock.lock().expect("not poisoned"));
                own.say(50);
            });
            let own = log.clone();
            let middle = at(30, move || own.say(30));
            h.store(true, SeqCst);
            low.thread().unpark();
            join_all(vec![high, middle, low]);
            // Holds the lock first, with priority 50. Without the lock it is the last again.
            assert_eq!(log.said(), [10, 50, 30, 11]);
        });
    });
}

#[test]
fn priority_is_inherited_along_a_chain_of_locks() {
    alone("priority_is_inherited_along_a_chain_of_locks", || {
        on_one_vp("priority_is_inherited_along_a_chain_of_locks", || {
            const LINKS: usize = 5;
            let log = Log::default();
            let locks: Arc<Vec<_>> = Arc::new((0..=LINKS).map(|_| Mutex::new(())).collect());
            let waiting = Arc::new(AtomicU32::new(0));
            let go = Arc::new(AtomicBool::new(false));
            // Microprocess i holds lock i and waits for lock i - 1. Microprocess 0 holds lock 0
            // until it may continue.
            let all: Vec<_> = (0..=LINKS)
                .map(|i| {
                    let arrived = waiting.clone();
                    let (log, locks, go) = (log.clone(), locks.clone(), go.clone());
                    let handle = at(10 + i as u8, move || {
                        let own = locks[i].lock().expect("not poisoned");
                        arrived.fetch_add(1, SeqCst);
                        if i == 0 {
                            while !go.load(SeqCst) {
                                thread::park();
                            }
                        } else {
                            drop(locks[i - 1].lock().expect("not poisoned"));
                        }
                        log.say(i as u64);
                        drop(own);
                    });
                    // Each holds its own lock before the next one waits for it.
                    while (waiting.load(SeqCst) as usize) <= i {
                        thread::sleep(Duration::from_micros(50));
                    }
                    handle
                })
                .collect();
            let (own, l) = (log.clone(), locks.clone());
            let high = at(50, move || {
                drop(l[LINKS].lock().expect("not poisoned"));
                own.say(50);
            });
            let own = log.clone();
            let middle = at(40, move || own.say(40));
            go.store(true, SeqCst);
            all[0].thread().unpark();
            join_all(vec![high, middle]);
            join_all(all);
            let mut expected: Vec<_> = (0..=LINKS as u64).collect();
            expected.extend([50, 40]);
            assert_eq!(log.said(), expected);
        });
    });
}

/// Computing microprocesses that use up their quanta, and one that mostly waits: all make progress.
#[test]
fn feedback_starves_no_microprocess() {
    alone("feedback_starves_no_microprocess", || {
        let policy = Feedback::with_quantum(Duration::from_micros(100), Duration::from_micros(500));
        Runtime::builder().vps(1).policy(policy).build().expect("a runtime").run(|| {
            let over = Arc::new(AtomicBool::new(false));
            let turns: Vec<_> = (0..4).map(|_| Arc::new(AtomicU32::new(0))).collect();
            let computing = turns
                .iter()
                .map(|turns| {
                    let (over, turns) = (over.clone(), turns.clone());
                    thread::spawn(move || {
                        while !over.load(SeqCst) {
                            turns.fetch_add(1, SeqCst);
                            for n in 0..2000 {
                                std::hint::black_box(n);
                            }
                            thread::cancellation_point();
                        }
                    })
                })
                .collect();
            // Ends when all have had many turns.
            let turns_of_all = turns.clone();
            let waits = thread::spawn(move || {
                while turns_of_all.iter().any(|turns| turns.load(SeqCst) < 50) {
                    thread::sleep(Duration::from_micros(100));
                }
            });
            waits.join().expect("no panic");
            over.store(true, SeqCst);
            join_all(computing);
        });
    });
}

/// Connections that are always ready, more of them than one poll returns, are served first most of
/// the time, but not all of the time.
#[test]
fn busy_connections_starve_nobody() {
    const CONNECTIONS: usize = 300;
    alone("busy_connections_starve_nobody", || {
        on_one_vp("busy_connections_starve_nobody", || {
            // The spawned microprocesses inherit the priority.
            thread::current().set_priority(Priority::DEFAULT);
            let (done, served) = (AtomicBool::new(false), AtomicU32::new(0));
            let (done, served) = (&done, &served);
            let pairs: Vec<_> =
                (0..CONNECTIONS).map(|_| UnixStream::pair().expect("a pair")).collect();
            thread::scope(|s| {
                for (first, second) in &pairs {
                    for (mut stream, begins) in [(first, true), (second, false)] {
                        s.spawn(move || {
                            if begins {
                                stream.write_all(&[7]).expect("room");
                            }
                            while stream.read(&mut [0; 2]).expect("a byte or the end") == 1
                                && !done.load(SeqCst)
                            {
                                served.fetch_add(1, SeqCst);
                                stream.write_all(&[7]).expect("room");
                            }
                            stream.shutdown(Shutdown::Write).expect("open");
                        });
                    }
                }
                // Of equal priority, and behind the connections each time.
                for _ in 0..50 {
                    thread::yield_now();
                }
                done.store(true, SeqCst);
            });
            assert!(served.load(SeqCst) > CONNECTIONS as u32, "they were busy");
        });
    });
}

#[test]
fn round_robin_turn_ends() {
    alone("round_robin_turn_ends", || {
        let policy = RoundRobin::with_quantum(Duration::from_micros(100));
        Runtime::builder().vps(1).policy(policy).build().expect("a runtime").run(|| {
            let over = Arc::new(AtomicBool::new(false));
            let seen = over.clone();
            let computes = thread::spawn(move || {
                while !seen.load(SeqCst) {
                    thread::cancellation_point();
                }
            });
            let equal = thread::spawn(move || over.store(true, SeqCst));
            join_all(vec![computes, equal]);
        });
    });
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    alone("sleepers_wake_in_the_order_of_their_deadlines", || {
        on_one_vp("sleepers_wake_in_the_order_of_their_deadlines", || {
            let (log, mut random) = (Log::default(), Random(seed()));
            // Set after all have been created, so that all sleep before the first deadline.
            let start = Arc::new(OnceLock::new());
            let mut times: Vec<u64> = (0..200).collect();
            for i in (1..times.len()).rev() {
                times.swap(i, random.below(i as u64 + 1) as usize);
            }
            let all = times
                .into_iter()
                .map(|n| {
                    let (log, start) = (log.clone(), start.clone());
                    at(32, move || {
                        let deadline = *start.wait() + Duration::from_micros(100 * n);
                        thread::sleep_until(deadline);
                        assert!(Instant::now() >= deadline, "too early");
                        log.say(n);
                    })
                })
                .collect();
            start.set(Instant::now() + Duration::from_millis(500)).expect("set once");
            join_all(all);
            assert_eq!(log.said(), (0..200).collect::<Vec<_>>());
        });
    });
}

#[test]
fn sleepers_cost_no_kernel_object_each() {
    alone("sleepers_cost_no_kernel_object_each", || {
        Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            if one_to_one() {
                return skip(
                    "sleepers_cost_no_kernel_object_each",
                    "every microprocess is a kernel thread",
                );
            }
            let now =
                || (std::fs::read_dir("/proc/self/fd").expect("procfs").count(), kernel_threads());
            let before = now();
            let all: Vec<_> = (0..20_000u64)
                .map(|n| {
                    let sleep = move || thread::sleep(Duration::from_secs(3600 + n % 7));
                    Builder::new().stack_size(0).spawn(sleep).expect("it begins")
                })
                .collect();
            // When a microprocess of lower priority has run on both VPs, all have armed their
            // timers.
            at(1, || ()).join().expect("no panic");
            let after = now();
            // No descriptor for each sleeper. But the pool may have grown to its limit, with one or
            // two descriptors for each kernel thread (event source, clock).
            let kept = metrics().expect("it runs").vps.len() + 1;
            assert!(
                after.0 <= before.0 + before.1 + 2 * kept && after.1 <= before.1 + kept,
                "{before:?} before, {after:?} after"
            );
            assert!(metrics().expect("it runs").living >= 20_000);
            for handle in &all {
                handle.cancel();
            }
            for handle in all {
                assert!(handle.join().expect_err("cancelled").is::<thread::Cancelled>());
            }
        });
    });
}

#[test]
fn unpark_ends_a_timed_park_early() {
    alone("unpark_ends_a_timed_park_early", || {
        Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            for _ in 0..200 {
                let handle = thread::spawn(|| {
                    thread::park_timeout(Duration::from_secs(3600));
                    // The first wait's timer must neither end this sleep early nor extend it.
                    let deadline = Instant::now() + Duration::from_micros(100);
                    thread::sleep_until(deadline);
                    assert!(Instant::now() >= deadline);
                });
                handle.thread().unpark();
                handle.join().expect("no panic");
            }
        });
    });
}

/// Without events, only its own switch points make a computing microprocess yield. Microprocesses
/// that the other VP of the ring hands over must still run.
#[test]
fn microprocesses_queued_at_a_computing_vp_start() {
    alone("microprocesses_queued_at_a_computing_vp_start", || {
        let policy = RoundRobin::with_quantum(Duration::from_micros(100));
        let builder = Runtime::builder().vps(2).queue(Design::Ring).events(Events::Off);
        builder.policy(policy).build().expect("a runtime").run(|| {
            for _ in 0..300 {
                let missing = Arc::new(AtomicU32::new(6));
                let compute_until_all_have_begun = || {
                    let missing = missing.clone();
                    move || {
                        missing.fetch_sub(1, SeqCst);
                        while missing.load(SeqCst) > 0 {
                            thread::cancellation_point();
                        }
                    }
                };
                join_all((0..6).map(|_| thread::spawn(compute_until_all_have_begun())).collect());
            }
        });
    });
}

/// Makes two descriptors ready, one after the other, while the caller runs. Returns whether their
/// readers ran in that order.
fn readers_run_in_order(busy: &UnixStream) -> bool {
    let log = Log::default();
    let (mut writers, readers): (Vec<_>, Vec<_>) = (0..2)
        .map(|n| {
            let (near, mut far) = UnixStream::pair().expect("a pair");
            let log = log.clone();
            let reader = at(40, move || {
                far.read_exact(&mut [0]).expect("a byte");
                log.say(n);
            });
            (near, reader)
        })
        .unzip();
    // Below the readers' level the caller runs on only when both wait.
    thread::current().set_priority(level(30));
    thread::yield_now();
    thread::current().set_priority(level(63));
    for writer in &mut writers {
        writer.write_all(&[0]).expect("room");
        // Each attempt is a switch point, and the VP polls its descriptors at one of 61 if the last
        // poll was 100 us ago. So it has polled after the write when this loop ends.
        let begun = Instant::now();
        let mut left = 100;
        while left > 0 {
            let mut stream = busy;
            assert!(stream.read(&mut [0]).is_err(), "nothing is there");
            left -= u32::from(begun.elapsed() >= Duration::from_millis(1));
        }
    }
    readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    log.said() == [0, 1]
}

#[test]
fn ready_descriptors_are_served_in_the_order_of_arrival_unless_recent_goes_first() {
    let name = "ready_descriptors_are_served_in_the_order_of_arrival_unless_recent_goes_first";
    for order in [ReadyOrder::Arrival, ReadyOrder::Recent] {
        let builder = Runtime::builder().vps(1).policy(FixedPriority).events(Events::Off);
        // A call that waits for its batch would let others run.
        let builder = builder.batch(BatchPolicy::Off);
        let runtime = builder.ready_order(order).build().expect("a runtime");
        if one_to_one() {
            return skip(name, "the kernel does the scheduling");
        }
        runtime.run(|| {
            thread::current().set_priority(level(63));
            let (busy, _open) = UnixStream::pair().expect("a pair");
            busy.set_nonblocking(true).expect("a socket");
            let in_order = (0..20).filter(|_| readers_run_in_order(&busy)).count();
            match order {
                ReadyOrder::Arrival => assert_eq!(in_order, 20),
                ReadyOrder::Recent => assert!(in_order < 20, "the second never went first"),
            }
        });
    }
}
