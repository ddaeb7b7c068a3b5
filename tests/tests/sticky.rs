//! Microprocesses that often wait in calls outside of the runtime: they keep their kernel threads,
//! and otherwise behave like all microprocesses.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use kumihimo::net::UnixStream;
use kumihimo::policy::{FixedPriority, Priority};
use kumihimo::runtime::{Builder, Metrics, OnDeadlock, Runtime, dump, metrics};
use kumihimo::sync::{Mutex, RwLock, mpsc};
use kumihimo::thread::{self, Suspended};
use kumihimo_events::source::{Kind, open_one};
use kumihimo_tests::pipe_echo::PipeEcho;
use kumihimo_tests::process::{Ended, again, is_child, one_to_one};
use kumihimo_tests::{extent, skip};

const SOURCES: [Kind; 3] = [Kind::Bpf, Kind::Perf, Kind::Watch];

/// Runs `body` in a runtime with two VPs, in a child process for each available source. `check`
/// receives the result.
fn under_each(name: &str, with: fn(Builder) -> Builder, body: fn(), check: fn(&Ended)) {
    if is_child(name) {
        let builder = Runtime::builder().vps(2).sticky(true);
        return with(builder).build().expect("a runtime").run(move || {
            if one_to_one() {
                return skip(name, "microprocesses are kernel threads here");
            }
            body();
        });
    }
    for source in SOURCES {
        if let Err(refused) = open_one(source, 8) {
            skip(&format!("{source}: {name}"), &refused.to_string());
            continue;
        }
        // Other tests run concurrently, and different priorities at a shared board would affect
        // this test.
        let ended = again(name, &[("KUMI_EVENTS", source.name()), ("KUMI_ARBITER", "none")]);
        match ended.stderr.lines().find_map(|line| line.strip_prefix("[skip] ")) {
            Some(why) => skip(&format!("{source}: {name}"), why),
            None => check(&ended),
        }
    }
}

/// As [`under_each`], without extra settings and with a check for success.
fn each(name: &str, body: fn()) {
    under_each(name, |builder| builder.on_deadlock(OnDeadlock::Abort), body, well);
}

fn well(ended: &Ended) {
    assert!(ended.status.success(), "{}\n{}\n{}", ended.status, ended.stdout, ended.stderr);
}

fn now() -> Metrics {
    metrics().expect("a runtime runs")
}

fn is_any_sticky() -> bool {
    now().sticky != 0
}

/// After this time, a wait is probably a hang, and its state is reported once. The test does not
/// fail because of it: the limit on tests without progress detects a real hang.
const REPORT_AFTER: Duration = Duration::from_secs(20);

/// Time between two looks at the state of the runtime. A look may be a dump, which interrupts all.
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// Sleeps until `is` holds.
fn until(is: impl Fn() -> bool) {
    let (start, mut reported) = (Instant::now(), false);
    while !is() {
        thread::sleep(LOOK_EVERY);
        if !reported && start.elapsed() > REPORT_AFTER {
            reported = true;
            eprintln!("not so after {REPORT_AFTER:?}: {:?}", now());
            dump(&mut std::io::stderr()).expect("standard error takes all");
        }
    }
}

/// Waits until the dump contains a microprocess that waits for `what`.
fn until_one_waits_for(what: &str) {
    until(|| {
        let mut text = Vec::new();
        dump(&mut text).expect("memory takes all");
        String::from_utf8_lossy(&text).contains(&format!("waits for {what}"))
    });
}

/// A byte that is echoed at once.
const BYTE: u8 = 7;

/// A byte that is echoed after [`LASTS`]. Sources that scan for blocks (`perf`, `watch`) find only
/// those that last from one scan to the next, at most 1.6 ms (`Watch::LONGEST`). Shorter blocks
/// cost nothing with them, and make no microprocess sticky.
const LONG: u8 = 8;
const LASTS: Duration = Duration::from_millis(5);

fn outside() -> PipeEcho {
    PipeEcho::delayed(|byte| (byte == LONG).then_some(LASTS))
}

/// Waits for echoes until the caller, the only microprocess that does so, is sticky.
fn stick(outside: &mut PipeEcho) {
    until(|| !is_any_sticky());
    while !is_any_sticky() {
        outside.ask(LONG);
        thread::yield_now();
    }
}

#[test]
fn waits_of_the_runtime_return_a_sticky_thread_to_a_vp() {
    each("waits_of_the_runtime_return_a_sticky_thread_to_a_vp", || {
        let one = thread::spawn(|| {
            let mut outside = outside();
            for _ in 0..20 {
                stick(&mut outside);
                for _ in 0..10 {
                    thread::sleep(Duration::from_micros(50));
                }
                assert!(!is_any_sticky());
            }
        });
        one.join().expect("no panic");
        let now = now();
        assert!(now.changes >= 40 && now.changes.is_multiple_of(2), "{now:?}");
    });
}

/// It needs a kernel thread only for as long as it blocks elsewhere.
#[test]
fn long_wait_in_the_runtime_returns_a_sticky_thread_to_a_vp() {
    each("long_wait_in_the_runtime_returns_a_sticky_thread_to_a_vp", || {
        for round in 0..extent(10, 3) {
            let (send, receive) = mpsc::channel();
            let one = thread::spawn(move || {
                stick(&mut outside());
                receive.recv()
            });
            until_one_waits_for("the channel");
            until(|| !is_any_sticky());
            until_one_waits_for("the channel");
            send.send(round).expect("it receives");
            assert_eq!(one.join().expect("no panic"), Ok(round));
        }
    });
}

#[test]
fn yielding_thread_returns_to_a_vp() {
    each("yielding_thread_returns_to_a_vp", || {
        let one = thread::spawn(|| {
            stick(&mut outside());
            while is_any_sticky() {
                thread::yield_now();
            }
        });
        one.join().expect("no panic");
    });
}

#[test]
fn sticky_thread_is_woken_by_every_kind_of_wait() {
    each("sticky_thread_is_woken_by_every_kind_of_wait", || {
        // A multiple of three, for each of the ways to wait for the waiter.
        let all = extent(30, 6);
        let (send, receive) = mpsc::channel();
        let lock = Arc::new(Mutex::new(0));
        let shared = Arc::new(RwLock::new(0));
        let (locks, reads) = (lock.clone(), shared.clone());
        let (near, far) = UnixStream::pair().expect("sockets");
        let rounds = Arc::new(AtomicU64::new(0));
        let counts = rounds.clone();
        let one = thread::spawn(move || {
            let mut outside = outside();
            // Before each wait, so that the microprocess stays sticky.
            let mut again = || (0..20).for_each(|_| outside.ask(BYTE));
            for round in 0..all {
                again();
                assert_eq!(receive.recv(), Ok(round));
                again();
                thread::park();
                again();
                *locks.lock().expect("no poison") += 1;
                again();
                assert!(*reads.read().expect("no poison") >= round);
                again();
                let mut bytes = [0; 2];
                (&near).read_exact(&mut bytes).expect("two bytes");
                again();
                assert_eq!(thread::spawn(move || round).join().expect("no panic"), round);
                counts.fetch_add(1, SeqCst);
            }
        });
        for round in 0..all {
            let held = (lock.lock().expect("no poison"), shared.write());
            send.send(round).expect("it receives");
            one.thread().unpark();
            if round % 3 == 0 {
                until_one_waits_for("the mutex");
            }
            let (guard, write) = held;
            drop(guard);
            if round % 3 == 1 {
                until_one_waits_for("the rwlock");
            }
            *write.expect("no poison") = round;
            (&far).write_all(b"a").expect("it reads");
            if round % 3 == 2 {
                until_one_waits_for("descriptor");
            }
            (&far).write_all(b"b").expect("it reads");
            until(|| rounds.load(SeqCst) == round + 1);
        }
        one.join().expect("no panic");
        assert_eq!(*lock.lock().expect("no poison"), all);
    });
}

/// A joiner registers and moves from its kernel thread to a VP before it parks. It must be woken
/// even if the joined microprocess ends on that VP at the same time.
#[test]
fn joiner_that_returns_to_a_vp_is_woken() {
    each("joiner_that_returns_to_a_vp_is_woken", || {
        let one = thread::spawn(|| {
            let mut outside = outside();
            for round in 0..30 {
                stick(&mut outside);
                while is_any_sticky() {
                    assert_eq!(thread::spawn(move || round).join().expect("no panic"), round);
                }
            }
        });
        one.join().expect("no panic");
    });
}

#[test]
fn lock_taken_before_becoming_sticky_is_released_after() {
    each("lock_taken_before_becoming_sticky_is_released_after", || {
        let lock = Arc::new(Mutex::new(0));
        for round in 0..20 {
            let locks = lock.clone();
            let one = thread::spawn(move || {
                let mut outside = outside();
                let mut guard = locks.lock().expect("no poison");
                stick(&mut outside);
                *guard += 1;
                drop(guard);
                let mut guard = locks.lock().expect("no poison");
                for _ in 0..10 {
                    thread::sleep(Duration::from_micros(20));
                }
                assert!(!is_any_sticky());
                *guard += 1;
            });
            one.join().expect("no panic");
            assert_eq!(*lock.lock().expect("no poison"), 2 * (round + 1));
        }
    });
}

#[test]
fn sticky_wait_can_be_cancelled() {
    each("sticky_wait_can_be_cancelled", || {
        for _ in 0..extent(20, 5) {
            let (_send, receive) = mpsc::channel::<()>();
            let one = thread::spawn(move || {
                stick(&mut outside());
                let _ = receive.recv();
            });
            until_one_waits_for("the channel");
            one.thread().cancel();
            let ended = one.join().expect_err("it was cancelled");
            assert!(ended.is::<thread::Cancelled>());
        }
    });
}

#[test]
fn scope_deadline_ends_a_sticky_wait() {
    each("scope_deadline_ends_a_sticky_wait", || {
        let (_send, receive) = mpsc::channel::<()>();
        let deadline = Instant::now() + Duration::from_millis(300);
        let ended = thread::scope_until(deadline, |scope| {
            let one = scope.spawn(move || {
                stick(&mut outside());
                let _ = receive.recv();
            });
            one.join().is_err()
        });
        assert!(ended && Instant::now() >= deadline);
    });
}

#[test]
fn suspended_sticky_thread_continues_after_resume() {
    each("suspended_sticky_thread_continues_after_resume", || {
        let all = extent(20, 5);
        let (send, receive) = mpsc::channel();
        let count = Arc::new(AtomicU64::new(0));
        let counts = count.clone();
        let one = thread::spawn(move || {
            let mut outside = outside();
            stick(&mut outside);
            for n in 0..all {
                assert_eq!(receive.recv(), Ok(n));
                counts.fetch_add(1, SeqCst);
                (0..20).for_each(|_| outside.ask(BYTE));
            }
        });
        for n in 0..all {
            until_one_waits_for("the channel");
            assert_eq!(one.thread().suspend().expect("a microprocess"), Suspended::Now);
            send.send(n).expect("it receives");
            (0..100).for_each(|_| thread::yield_now());
            assert_eq!(count.load(SeqCst), n);
            assert!(one.thread().resume().expect("a microprocess"));
            until(|| count.load(SeqCst) == n + 1);
        }
        one.join().expect("no panic");
    });
}

/// By the mechanism that interrupts a computation in user mode. If a kernel thread cannot wait in a
/// signal handler, the microprocess stops when it enters the runtime.
#[test]
fn suspension_stops_a_computing_sticky_thread() {
    each("suspension_stops_a_computing_sticky_thread", || {
        if now().events != "bpf" || now().preemption == "off" {
            return skip(
                "suspension_stops_a_computing_sticky_thread",
                "nothing stops it before it enters the runtime",
            );
        }
        let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counts, stops) = (count.clone(), stop.clone());
        let one = thread::spawn(move || {
            stick(&mut outside());
            while !stops.load(SeqCst) {
                counts.fetch_add(1, SeqCst);
            }
        });
        for _ in 0..20 {
            let before = count.load(SeqCst);
            until(|| count.load(SeqCst) != before);
            assert_eq!(one.thread().suspend().expect("a microprocess"), Suspended::Now);
            let before = count.load(SeqCst);
            (0..1000).for_each(|_| thread::yield_now());
            assert_eq!(count.load(SeqCst), before);
            assert!(one.thread().resume().expect("a microprocess"));
        }
        stop.store(true, SeqCst);
        one.join().expect("no panic");
    });
}

/// A sticky microprocess obeys a suspension when `blocking` returns.
#[test]
fn suspension_inside_blocking_stops_it_on_return() {
    each("suspension_inside_blocking_stops_it_on_return", || {
        let (count, inside, go) =
            (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (counts, is_inside, goes) = (count.clone(), inside.clone(), go.clone());
        let one = thread::spawn(move || {
            let mut outside = outside();
            stick(&mut outside);
            for n in 1..=20 {
                (0..4).for_each(|_| outside.ask(BYTE));
                thread::blocking(|| {
                    is_inside.store(n, SeqCst);
                    while goes.load(SeqCst) < n {
                        std::thread::yield_now();
                    }
                });
                counts.store(n, SeqCst);
            }
        });
        for n in 1..=20 {
            until(|| inside.load(SeqCst) == n);
            let suspended = one.thread().clone();
            let asks = thread::spawn(move || suspended.suspend());
            until(|| one.thread().is_suspended());
            go.store(n, SeqCst);
            let answer = asks.join().expect("no panic").expect("a microprocess");
            assert!(matches!(answer, Suspended::Now | Suspended::OnReturn));
            (0..1000).for_each(|_| thread::yield_now());
            assert_eq!(count.load(SeqCst), n - 1, "it ran on");
            assert!(one.thread().resume().expect("a microprocess"));
            until(|| count.load(SeqCst) == n);
        }
        one.join().expect("no panic");
    });
}

/// Once microprocesses of different priorities have existed, none is sticky any more, whatever it
/// waits in.
#[test]
fn no_thread_is_sticky_after_priorities_differ() {
    let with = |builder: Builder| builder.policy(FixedPriority).on_deadlock(OnDeadlock::Abort);
    let body = || {
        let stop = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(AtomicUsize::new(0));
        let (stops, counts) = (stop.clone(), rounds.clone());
        let one = thread::spawn(move || {
            let mut outside = outside();
            while !stops.load(SeqCst) {
                outside.ask(LONG);
                thread::yield_now();
                counts.fetch_add(1, SeqCst);
            }
        });
        until(is_any_sticky);
        let level = Priority::new(Priority::DEFAULT.get() - 1).expect("a level");
        thread::Builder::new()
            .priority(level)
            .spawn(|| ())
            .expect("memory")
            .join()
            .expect("no panic");
        // It may just be becoming sticky, for a reason that it found before. Then it is recalled.
        let before = rounds.load(SeqCst);
        until(|| rounds.load(SeqCst) >= before + 2);
        until(|| !is_any_sticky());
        let changes = now().changes;
        for _ in 0..1000 {
            thread::yield_now();
            assert!(!is_any_sticky());
        }
        assert_eq!(now().changes, changes);
        stop.store(true, SeqCst);
        one.join().expect("no panic");
    };
    under_each("no_thread_is_sticky_after_priorities_differ", with, body, well);
}

#[test]
fn sticky_deadlock_is_reported() {
    let body = || {
        let ((send, receive), (back, wait)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
        let one = thread::spawn(move || {
            stick(&mut outside());
            let _ = wait.recv();
            drop(send);
        });
        until_one_waits_for("the channel");
        let _ = receive.recv();
        drop(back);
        let _ = one.join();
    };
    let check = |ended: &Ended| {
        let said = &ended.stderr;
        assert!(
            !ended.status.success() && said.contains("deadlock: all 2 living microprocesses wait"),
            "{said}"
        );
    };
    let with = |builder: Builder| builder.on_deadlock(OnDeadlock::Abort);
    under_each("sticky_deadlock_is_reported", with, body, check);
}

/// Microprocesses that return from the kernel continue, and each frees a kernel thread when it
/// ends.
#[test]
fn limit_on_kernel_threads_is_not_reported_as_a_deadlock() {
    let with = |builder: Builder| builder.max_kernel_threads(8).on_deadlock(OnDeadlock::Abort);
    let body = || {
        let all: Vec<_> = (0..40u64)
            .map(|n| {
                thread::spawn(move || {
                    for _ in 0..3 {
                        std::thread::sleep(Duration::from_millis(5));
                        thread::sleep(Duration::from_micros(10 * n));
                    }
                    n
                })
            })
            .collect();
        let sum: u64 = all.into_iter().map(|one| one.join().expect("no panic")).sum();
        assert_eq!(sum, 39 * 40 / 2);
        assert!(now().kernel_threads <= 8, "{:?}", now());
    };
    under_each("limit_on_kernel_threads_is_not_reported_as_a_deadlock", with, body, well);
}

/// Each sleep is counted: by the source while it is reported, otherwise by the kernel for its
/// thread.
#[test]
fn every_sticky_sleep_is_counted() {
    const SLEEPS: u64 = 2_000;
    each("every_sticky_sleep_is_counted", || {
        if now().events != "bpf" {
            return skip(
                "every_sticky_sleep_is_counted",
                "this source does not count the sleeps that it reports",
            );
        }
        let before = now();
        let one = thread::spawn(|| {
            for _ in 0..SLEEPS {
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        one.join().expect("no panic");
        let after = now();
        let told = after.blocked - before.blocked;
        let counted = after.sticky_sleeps - before.sticky_sleeps;
        // A sleep whose time has passed before the thread has left its core does not count.
        assert!(told + counted >= SLEEPS - SLEEPS / 100, "{told} told, {counted} counted");
        assert!(told < SLEEPS / 10, "{told} of {SLEEPS} sleeps were reported");
    });
}

/// A sticky kernel thread has neither an event of the source nor a preemption clock: both would
/// cost time at every switch.
#[test]
fn sticky_kernel_thread_owns_no_event() {
    each("sticky_kernel_thread_owns_no_event", || {
        const ALL: usize = 30;
        let stop = Arc::new(AtomicBool::new(false));
        let all: Vec<_> = (0..ALL)
            .map(|_| {
                let stops = stop.clone();
                thread::spawn(move || {
                    let mut outside = outside();
                    while !stops.load(SeqCst) {
                        outside.ask(LONG);
                        thread::yield_now();
                    }
                })
            })
            .collect();
        until(|| now().sticky == ALL);
        let is_event = |link: &std::path::Path| {
            let of = std::fs::read_link(link).unwrap_or_default();
            let name = of.to_string_lossy().into_owned();
            name.contains("perf_event") || name.contains("bpf_link") || name.contains("bpf-link")
        };
        let events = || {
            let open = std::fs::read_dir("/proc/self/fd").expect("procfs").flatten();
            open.filter(|entry| is_event(&entry.path())).count()
        };
        // A thread gives its events up just after it counts as sticky. Each of the other kernel
        // threads may have had two.
        let is_few = || events() <= 2 * (now().kernel_threads - ALL) + 4;
        until(is_few);
        // A clock interrupts a thread that runs, so that it records its stack.
        let dumped = || dump(&mut std::io::sink()).expect("a sink takes all");
        (0..extent(20, 5)).for_each(|_| dumped());
        until(is_few);
        stop.store(true, SeqCst);
        all.into_iter().for_each(|one| one.join().expect("no panic"));
    });
}

#[test]
fn stickiness_can_be_switched_off() {
    let body = || {
        let one = thread::spawn(|| {
            let mut outside = outside();
            (0..2000).for_each(|_| outside.ask(BYTE));
        });
        one.join().expect("no panic");
        assert_eq!(now().changes, 0);
    };
    under_each("stickiness_can_be_switched_off", |builder| builder.sticky(false), body, well);
}

#[test]
fn invalid_stickiness_setting_is_refused() {
    const NAME: &str = "invalid_stickiness_setting_is_refused";
    if is_child(NAME) {
        let e = Runtime::builder().build().expect_err("a word");
        assert_eq!(e.to_string(), "KUMI_LAB=sticky=perhaps: expected on or off for sticky");
        return;
    }
    well(&again(NAME, &[("KUMI_LAB", "sticky=perhaps")]));
}
