//! Suspension and resumption from inside the process.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kumihimo::policy::{FixedPriority, Priority};
use kumihimo::runtime::{Design, OnDeadlock, Preemption, Runtime};
use kumihimo::sync::{Mutex, mpsc};
use kumihimo::thread::{self, Builder, JoinHandle, Suspended, Thread};
use kumihimo_tests::process::{alone, is_preempted, one_to_one};
use kumihimo_tests::{Random, seed, skip};

const DESIGNS: [Design; Design::ALL.len()] = Design::ALL;

/// Runs `body` under each queue design, in a child process.
fn each(name: &str, vps: usize, body: impl Fn() + Send + Sync + Copy) {
    alone(name, || {
        for design in DESIGNS {
            let builder = Runtime::builder().vps(vps).queue(design).policy(FixedPriority);
            let runtime = builder.on_deadlock(OnDeadlock::Abort).build().expect("a runtime");
            if one_to_one() {
                return skip(name, "kernel threads are not suspended");
            }
            runtime.run(body);
        }
    });
}

/// A microprocess that counts until a flag is set, without entering the runtime.
fn counting() -> (JoinHandle<()>, Arc<AtomicU64>, Arc<AtomicBool>) {
    let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counts, until) = (count.clone(), stop.clone());
    let handle = thread::spawn(move || {
        while !until.load(SeqCst) {
            counts.fetch_add(1, SeqCst);
        }
    });
    (handle, count, stop)
}

fn goes_on(count: &AtomicU64) {
    let before = count.load(SeqCst);
    while count.load(SeqCst) == before {
        thread::sleep(Duration::from_micros(100));
    }
}

/// Checks that the count does not change for some hundred switches.
fn stands_still(count: &AtomicU64) {
    let before = count.load(SeqCst);
    for _ in 0..100 {
        thread::yield_now();
        thread::sleep(Duration::from_micros(50));
    }
    assert_eq!(count.load(SeqCst), before);
}

#[test]
fn suspension_stops_a_computing_microprocess() {
    const NAME: &str = "suspension_stops_a_computing_microprocess";
    if !is_preempted(NAME) {
        return;
    }
    each(NAME, 2, || {
        // At a priority at which the computation cannot keep this microprocess from running.
        thread::current().set_priority(Priority::HIGHEST);
        let (handle, count, stop) = counting();
        goes_on(&count);
        for _ in 0..20 {
            assert_eq!(handle.thread().suspend().expect("a microprocess"), Suspended::Now);
            assert!(handle.thread().is_suspended());
            stands_still(&count);
            assert_eq!(handle.thread().suspend().expect("a microprocess"), Suspended::Already);
            assert!(handle.thread().resume().expect("a microprocess"));
            assert!(
                !handle.thread().resume().expect("a microprocess"),
                "it is not suspended any more"
            );
            goes_on(&count);
        }
        stop.store(true, SeqCst);
        handle.join().expect("no panic");
    });
}

#[test]
fn suspended_queued_microprocess_is_passed_over() {
    each("suspended_queued_microprocess_is_passed_over", 1, || {
        let (low, done) = (Priority::new(10).expect("0 to 63"), Arc::new(AtomicU64::new(0)));
        let all: Vec<_> = (0..100u64)
            .map(|n| {
                let done = done.clone();
                let add = move || {
                    done.fetch_add(1 << (32 * (n % 2)), SeqCst);
                };
                Builder::new().priority(low).spawn(add).expect("it begins")
            })
            .collect();
        for even in all.iter().step_by(2) {
            assert_eq!(even.thread().suspend().expect("a microprocess"), Suspended::Now);
        }
        // More than fit onto a carrier's stack if they were set aside recursively.
        thread::sleep(Duration::from_millis(5));
        while done.load(SeqCst) < 50 << 32 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(done.load(SeqCst), 50 << 32);
        for even in all.iter().step_by(2) {
            assert!(even.thread().resume().expect("a microprocess"));
        }
        all.into_iter().for_each(|one| one.join().expect("no panic"));
        assert_eq!(done.load(SeqCst), 50 << 32 | 50);
    });
}

#[test]
fn suspended_waiter_is_not_woken() {
    each("suspended_waiter_is_not_woken", 2, || {
        let (sender, receiver) = mpsc::channel::<u64>();
        let (got, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (to, times) = (got.clone(), seen.clone());
        let waits = thread::spawn(move || {
            for n in receiver {
                to.store(n, SeqCst);
                times.fetch_add(1, SeqCst);
            }
        });
        for n in 1..200 {
            sender.send(n).expect("a receiver");
            while got.load(SeqCst) != n {
                thread::yield_now();
            }
            assert_ne!(waits.thread().suspend().expect("a microprocess"), Suspended::Gone);
            sender.send(n + 1000).expect("a receiver");
            for _ in 0..20 {
                thread::yield_now();
            }
            assert_eq!((got.load(SeqCst), seen.load(SeqCst)), (n, 2 * n - 1));
            assert!(waits.thread().resume().expect("a microprocess"));
            while got.load(SeqCst) != n + 1000 {
                thread::yield_now();
            }
        }
        drop(sender);
        waits.join().expect("no panic");
    });
}

/// Inside a system call, the suspension takes effect on the return.
#[test]
fn suspension_takes_effect_on_return_from_the_kernel() {
    each("suspension_takes_effect_on_return_from_the_kernel", 2, || {
        let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
        let count = Arc::new(AtomicU64::new(0));
        let counts = count.clone();
        let reads = thread::spawn(move || {
            let mut byte = [0];
            while thread::blocking(|| reader.read(&mut byte)).expect("a pipe") == 1 {
                counts.fetch_add(1, SeqCst);
            }
        });
        for n in 1..50 {
            let suspended = reads.thread().suspend().expect("a microprocess");
            assert!(
                matches!(suspended, Suspended::OnReturn | Suspended::Now | Suspended::Asked),
                "{suspended:?}"
            );
            writer.write_all(&[1]).expect("a pipe");
            stands_still(&count);
            assert_eq!(count.load(SeqCst), n - 1);
            assert!(reads.thread().resume().expect("a microprocess"));
            while count.load(SeqCst) != n {
                thread::sleep(Duration::from_micros(100));
            }
        }
        drop(writer);
        reads.join().expect("no panic");
    });
}

/// The microprocess may return before its virtual processor is taken, and must stop nevertheless.
#[test]
fn suspension_takes_effect_on_return_from_blocking() {
    each("suspension_takes_effect_on_return_from_blocking", 1, || {
        let (count, inside, go) =
            (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (counts, is_inside, goes) = (count.clone(), inside.clone(), go.clone());
        let blocks = thread::spawn(move || {
            for n in 1..=50 {
                thread::blocking(|| {
                    is_inside.store(n, SeqCst);
                    while goes.load(SeqCst) < n {
                        std::hint::spin_loop();
                    }
                });
                counts.store(n, SeqCst);
            }
        });
        let suspended = blocks.thread().clone();
        let steers = std::thread::spawn(move || {
            for n in 1..=50 {
                while inside.load(SeqCst) < n {
                    std::thread::yield_now();
                }
                // The blocking call returns as soon as the suspension is requested.
                let answer = std::thread::scope(|scope| {
                    let asks = scope.spawn(|| suspended.suspend());
                    while !suspended.is_suspended() {
                        std::hint::spin_loop();
                    }
                    go.store(n, SeqCst);
                    asks.join().expect("no panic")
                });
                assert!(matches!(
                    answer.expect("a microprocess"),
                    Suspended::Now | Suspended::OnReturn
                ));
                (0..10).for_each(|_| std::thread::yield_now());
                assert_eq!(count.load(SeqCst), n - 1, "it ran on");
                assert!(suspended.resume().expect("a microprocess"));
                while count.load(SeqCst) < n {
                    std::thread::yield_now();
                }
            }
        });
        blocks.join().expect("no panic");
        thread::blocking(|| steers.join()).expect("no panic");
    });
}

/// A lean microprocess cannot be interrupted. Its yields do not switch: nothing else is runnable.
#[test]
fn suspended_lean_microprocess_stops_at_its_next_yield() {
    const NAME: &str = "suspended_lean_microprocess_stops_at_its_next_yield";
    alone(NAME, || {
        let runtime = Runtime::builder().vps(1).preemption(Preemption::Off);
        let runtime = runtime.build().expect("a runtime");
        if one_to_one() {
            return skip(NAME, "kernel threads are not suspended");
        }
        runtime.run(|| {
            let (me, rounds) = (Arc::new(OnceLock::<Thread>::new()), Arc::new(AtomicU64::new(0)));
            let (stop, ran_on) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (own, count) = (me.clone(), rounds.clone());
            let (stops, runs_on) = (stop.clone(), ran_on.clone());
            let body = move || {
                while !stops.load(SeqCst) {
                    let is_asked = || own.get().is_some_and(Thread::is_suspended);
                    let asked = is_asked();
                    thread::yield_now();
                    if asked && is_asked() {
                        runs_on.store(true, SeqCst);
                    }
                    count.fetch_add(1, SeqCst);
                }
            };
            // SAFETY: the closure uses no thread-local variable, and little stack.
            let lean = unsafe { Builder::new().lean(true) }.spawn(body).expect("it begins");
            me.set(lean.thread().clone()).expect("it is set once");
            let steers = std::thread::spawn(move || {
                let one = me.get().expect("it is set");
                for _ in 0..20 {
                    assert_ne!(one.suspend().expect("a microprocess"), Suspended::Gone);
                    assert!(one.resume().expect("a microprocess"));
                    // The next request comes after the check.
                    let before = rounds.load(SeqCst);
                    while rounds.load(SeqCst) < before + 2 {
                        std::thread::yield_now();
                    }
                }
                stop.store(true, SeqCst);
            });
            lean.join().expect("no panic");
            thread::blocking(|| steers.join()).expect("no panic");
            assert!(!ran_on.load(SeqCst), "a yield returned although a suspension was requested");
        });
    });
}

/// Joins and scopes wait for a suspended microprocess as for any other. A cancelled one unwinds
/// only after it is resumed.
#[test]
fn waiters_for_a_suspended_microprocess_keep_waiting() {
    each("waiters_for_a_suspended_microprocess_keep_waiting", 1, || {
        let joined = thread::spawn(|| thread::current().suspend().expect("a microprocess"));
        while !joined.thread().is_suspended() {
            thread::yield_now();
        }
        joined.cancel();
        (0..20).for_each(|_| thread::yield_now());
        assert!(!joined.is_finished() && joined.thread().is_suspended());
        let one = joined.thread().clone();
        let resumes = thread::spawn(move || assert!(one.resume().expect("a microprocess")));
        assert_eq!(
            joined.join().expect("it came to its end without waiting once more"),
            Suspended::Now
        );
        resumes.join().expect("no panic");
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let child = scope.spawn(|| {
                assert_eq!(thread::current().suspend().expect("a microprocess"), Suspended::Now);
                ended.store(true, SeqCst);
            });
            let child = child.thread().clone();
            scope.spawn(move || {
                while !child.is_suspended() {
                    thread::yield_now();
                }
                assert!(child.resume().expect("a microprocess"));
            });
        });
        assert!(ended.load(SeqCst));
    });
}

#[test]
fn microprocess_can_suspend_itself() {
    each("microprocess_can_suspend_itself", 1, || {
        let count = Arc::new(AtomicU64::new(0));
        let counts = count.clone();
        let suspends = thread::spawn(move || {
            for _ in 0..100 {
                counts.fetch_add(1, SeqCst);
                assert_eq!(thread::current().suspend().expect("a microprocess"), Suspended::Now);
            }
        });
        for n in 1..=100 {
            while count.load(SeqCst) != n {
                thread::yield_now();
            }
            while !suspends.thread().is_suspended() {
                thread::yield_now();
            }
            for _ in 0..5 {
                thread::yield_now();
            }
            assert_eq!(count.load(SeqCst), n);
            assert!(suspends.thread().resume().expect("a microprocess"));
        }
        suspends.join().expect("no panic");
    });
}

/// By then, the slot usually has a successor.
#[test]
fn suspension_of_an_ended_id_spares_its_successor() {
    each("suspension_of_an_ended_id_spares_its_successor", 1, || {
        let mut ended = Vec::new();
        for _ in 0..2_000 {
            let one = thread::spawn(|| ());
            ended.push(one.thread().clone());
            one.join().expect("no panic");
        }
        let successor = thread::spawn(thread::park);
        for former in &ended {
            assert_ne!(former.id(), successor.thread().id());
            assert_eq!(former.suspend().expect("a microprocess"), Suspended::Gone);
            assert!(!former.resume().expect("a microprocess"));
            assert!(!former.is_suspended());
        }
        let ids: std::collections::HashSet<_> = ended.iter().map(thread::Thread::id).collect();
        assert_eq!(ids.len(), ended.len(), "an id is never given twice");
        assert!(!successor.thread().is_suspended());
        successor.thread().unpark();
        successor.join().expect("no panic");
    });
}

/// The end of the runtime resumes them. They unwind without using up the grace time.
#[test]
fn runtime_ends_with_suspended_microprocesses() {
    struct Dropped(Arc<AtomicU64>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    const NAME: &str = "runtime_ends_with_suspended_microprocesses";
    alone(NAME, || {
        for design in DESIGNS {
            let dropped = Arc::new(AtomicU64::new(0));
            let builder =
                Runtime::builder().vps(2).queue(design).shutdown_grace(Duration::from_secs(3600));
            let runtime = builder.build().expect("a runtime");
            if one_to_one() {
                return skip(NAME, "kernel threads are not suspended");
            }
            let count = dropped.clone();
            runtime.run(move || {
                for _ in 0..50 {
                    let on_stack = Dropped(count.clone());
                    let one = thread::spawn(move || {
                        let _kept = on_stack;
                        loop {
                            thread::park();
                        }
                    });
                    thread::yield_now();
                    assert_ne!(one.thread().suspend().expect("a microprocess"), Suspended::Gone);
                }
            });
            assert_eq!(dropped.load(SeqCst), 50);
        }
    });
}

#[test]
fn kernel_thread_cannot_be_suspended() {
    let error = thread::current().suspend().expect_err("a kernel thread");
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
    assert!(error.to_string().contains("only a microprocess"), "{error}");
    assert_eq!(
        thread::current().resume().expect_err("a kernel thread").kind(),
        std::io::ErrorKind::Unsupported
    );
}

/// Workers lock, send, sleep, block, spawn and compute, and each piece of work is counted. Others
/// suspend and resume them at random, two at a time. Suspended microprocesses hold no lock of the
/// runtime, so the others can use all of its services.
#[test]
fn random_suspensions_under_load_lose_nothing() {
    const NAME: &str = "random_suspensions_under_load_lose_nothing";
    const WORKERS: usize = 24;
    const PIECES: u64 = 150;
    // A suspended microprocess may hold its allocator's spin lock, for which others spin inside the
    // runtime.
    if cfg!(kumihimo_asan) {
        return skip(NAME, "AddressSanitizer's allocator has its own spin locks in the program");
    }
    each(NAME, 2, || {
        let (lock, done) = (Arc::new(Mutex::new(0u64)), Arc::new(AtomicU64::new(0)));
        let workers: Vec<_> = (0..WORKERS as u64)
            .map(|n| {
                let (lock, done) = (lock.clone(), done.clone());
                let priority = Priority::new(20 + (n % 3) as u8).expect("0 to 63");
                let work = move || {
                    let mut random = Random(seed() ^ n);
                    for _ in 0..PIECES {
                        match random.below(7) {
                            0 => *lock.lock().expect("not poisoned") += 1,
                            1 => thread::sleep(Duration::from_micros(random.below(300))),
                            2 => thread::spawn(|| ()).join().expect("no panic"),
                            3 => thread::blocking(|| std::thread::sleep(Duration::from_micros(50))),
                            4 => {
                                let (sender, receiver) = mpsc::sync_channel(1);
                                let other =
                                    thread::spawn(move || sender.send(7).expect("it is received"));
                                assert_eq!(receiver.recv().expect("it is sent"), 7);
                                other.join().expect("no panic");
                            }
                            5 => (0..random.below(2_000)).for_each(|_| std::hint::spin_loop()),
                            _ => thread::yield_now(),
                        }
                        done.fetch_add(1, SeqCst);
                    }
                };
                Builder::new().priority(priority).spawn(work).expect("it begins")
            })
            .collect();
        let threads: Arc<Vec<_>> =
            Arc::new(workers.iter().map(|worker| worker.thread().clone()).collect());
        let controllers: Vec<_> = (0..2u64)
            .map(|n| {
                let (threads, done) = (threads.clone(), done.clone());
                let control = move || {
                    let mut random = Random(seed() ^ n << 40);
                    while done.load(SeqCst) < WORKERS as u64 * PIECES {
                        let some: Vec<_> = (0..3)
                            .map(|_| &threads[random.below(WORKERS as u64) as usize])
                            .collect();
                        for one in &some {
                            let _ = one.suspend().expect("a microprocess");
                        }
                        // Operations that every microprocess needs, by a microprocess that is not
                        // suspended.
                        assert_eq!(thread::spawn(|| 5).join().expect("no panic"), 5);
                        thread::sleep(Duration::from_micros(random.below(200)));
                        for one in &some {
                            one.resume().expect("a microprocess");
                        }
                    }
                };
                Builder::new()
                    .priority(Priority::new(40).expect("0 to 63"))
                    .spawn(control)
                    .expect("it begins")
            })
            .collect();
        controllers.into_iter().for_each(|one| one.join().expect("no panic"));
        workers.into_iter().for_each(|one| one.join().expect("no panic"));
        assert_eq!(done.load(SeqCst), WORKERS as u64 * PIECES);
    });
}
