//! Features of `kumihimo::thread` and `kumihimo::runtime` beyond std, by function.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use kumihimo::runtime::{self, Events, Runtime, metrics};
use kumihimo::sync::{Barrier, mpsc};
use kumihimo::thread::{self, Builder, Cancelled, Priority};
use kumihimo_events::cores::Cores;
use kumihimo_tests::process::{alone, kernel_threads, one_to_one};
use kumihimo_tests::skip;

const SHORT: Duration = Duration::from_millis(2);

fn on_two(name: &str, body: impl FnOnce() + Send) {
    alone(name, || Runtime::builder().vps(2).build().expect("a runtime").run(body));
}

#[test]
fn program_without_setup_uses_the_global_runtime() {
    alone("program_without_setup_uses_the_global_runtime", || {
        assert!(metrics().is_none());
        let (sender, receiver) = mpsc::channel();
        for n in 0..10 {
            let sender = sender.clone();
            thread::spawn(move || sender.send(n).expect("we receive"));
        }
        drop(sender);
        assert_eq!(receiver.iter().sum::<u64>(), 45);
        let now = metrics().expect("the first spawn has started it");
        assert_eq!(now.spawned, 10);
        assert_eq!(
            now.vps.len(),
            std::env::var("KUMI_VPS")
                .map_or(Cores::of_process().count(), |n| n.parse().expect("a number"))
        );
    });
}

#[test]
fn timed_parks_and_joins_return() {
    on_two("timed_parks_and_joins_return", || {
        let began = Instant::now();
        while began.elapsed() < SHORT {
            thread::park_until(began + SHORT);
        }
        thread::current().unpark();
        // The park token is available, so this returns at once.
        thread::park_until(began + Duration::from_secs(3600));

        let waits = thread::spawn(thread::park);
        let waits = waits.join_timeout(SHORT).expect_err("it waits");
        let waits = waits.join_until(Instant::now()).expect_err("it waits");
        assert!(!waits.is_finished());
        waits.thread().unpark();
        assert!(waits.join_timeout(Duration::MAX).is_ok_and(|outcome| outcome.is_ok()));

        let payload = thread::scope(|s| {
            let fails = s.spawn(|| {
                thread::park();
                panic!("as asked");
            });
            let fails = fails.join_timeout(SHORT).expect_err("it waits");
            let fails = fails.join_until(Instant::now()).expect_err("it waits");
            fails.thread().unpark();
            fails
                .join_until(Instant::now() + Duration::from_secs(3600))
                .expect("in time")
                .expect_err("it panics")
        });
        // The scope ignores a panic whose payload was taken.
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"as asked"));
    });
}

#[test]
fn names_ids_and_priorities_are_kept() {
    on_two("names_ids_and_priorities_are_kept", || {
        let gate = Barrier::new(11);
        let ids = thread::scope(|s| {
            let all: Vec<_> = (0..10)
                .map(|n| {
                    let gate = &gate;
                    let named =
                        Builder::new().name(format!("number {n}")).spawn_scoped(s, move || {
                            gate.wait();
                            (thread::current().name().map(str::to_owned), thread::current().id())
                        });
                    named.expect("it begins")
                })
                .collect();
            let ids: HashSet<_> = all.iter().map(|one| one.thread().id()).collect();
            gate.wait();
            for (n, one) in all.into_iter().enumerate() {
                let id = one.thread().id();
                assert_eq!(one.join().expect("no panic"), (Some(format!("number {n}")), id));
            }
            ids
        });
        assert_eq!(ids.len(), 10);
        assert!(!ids.contains(&thread::current().id()));
        if one_to_one() {
            return;
        }
        let ten = Priority::new(10).expect("in range");
        let other = Builder::new().priority(ten).spawn(|| {
            thread::park();
            thread::current().priority()
        });
        let other = other.expect("it begins");
        assert_eq!(
            (other.thread().priority(), thread::current().priority()),
            (ten, Priority::DEFAULT)
        );
        other.thread().set_priority(Priority::LOWEST);
        thread::current().set_priority(ten);
        assert_eq!(
            (other.thread().priority(), thread::current_priority()),
            (Priority::LOWEST, ten)
        );
        other.thread().unpark();
        assert_eq!(other.join().expect("no panic"), Priority::LOWEST);
    });
}

#[test]
fn cancellation_is_observed_and_can_be_masked() {
    on_two("cancellation_is_observed_and_can_be_masked", || {
        let steps = Arc::new(AtomicUsize::new(0));
        let seen = steps.clone();
        let one = thread::spawn(move || {
            thread::without_cancellation(|| {
                while !thread::cancel_requested() {
                    thread::yield_now();
                }
                thread::cancellation_point();
                seen.fetch_add(1, SeqCst);
            });
            thread::cancellation_point();
            seen.fetch_add(10, SeqCst);
        });
        assert!(!thread::cancel_requested());
        one.cancel();
        assert!(one.join().expect_err("cancelled").is::<Cancelled>());
        assert_eq!(steps.load(SeqCst), 1);
    });
}

#[test]
fn panic_reaches_the_runtimes_hook() {
    alone("panic_reaches_the_runtimes_hook", || {
        let told = Arc::new(StdMutex::new(Vec::new()));
        let hook = told.clone();
        let runtime = Runtime::builder().vps(2).on_panic(move |who, payload| {
            let text = payload.downcast_ref::<&str>().copied();
            hook.lock().expect("not poisoned").push((
                who.name().map(str::to_owned),
                who.id(),
                text,
            ));
        });
        runtime.build().expect("a runtime").run(|| {
            let named = Builder::new()
                .name("unlucky".into())
                .spawn(|| panic!("as asked"))
                .expect("it begins");
            let id = named.thread().id();
            drop(named.join().expect_err("it panics"));
            let expected = (Some("unlucky".to_owned()), id, Some("as asked"));
            assert_eq!(*told.lock().expect("not poisoned"), [expected]);
            let ended = thread::spawn(|| {
                loop {
                    thread::park();
                }
            });
            ended.cancel();
            assert!(ended.join().is_err());
            assert_eq!(
                told.lock().expect("not poisoned").len(),
                1,
                "a cancelled one has not panicked"
            );
        });
    });
}

/// P0's `set_concurrency`: kernel threads that return from `blocking` wait in the pool, up to the
/// requested number.
#[test]
fn pool_keeps_the_requested_number_of_kernel_threads() {
    on_two("pool_keeps_the_requested_number_of_kernel_threads", || {
        if one_to_one() {
            return skip(
                "pool_keeps_the_requested_number_of_kernel_threads",
                "every microprocess is a kernel thread",
            );
        }
        runtime::set_concurrency(5).expect("it runs");
        let all_in = Arc::new(std::sync::Barrier::new(8));
        let blocked: Vec<_> = (0..8)
            .map(|_| {
                let all_in = all_in.clone();
                thread::spawn(move || thread::blocking(|| all_in.wait().is_leader()))
            })
            .collect();
        for one in blocked {
            one.join().expect("no panic");
        }
        // The threads are returning to the pool.
        let settle = |spares| {
            while metrics().expect("it runs").spares != spares {
                thread::yield_now();
            }
        };
        settle(5);
        assert!(kernel_threads() >= 7);
        runtime::set_concurrency(2).expect("it runs");
        settle(2);
    });
    assert_eq!(
        runtime::set_concurrency(1).expect_err("none runs").kind(),
        std::io::ErrorKind::NotFound
    );
}

/// Two virtual processors are lent at the same time, and one kernel thread waits in the pool.
#[test]
fn each_lent_processor_finds_a_kernel_thread() {
    const NAME: &str = "each_lent_processor_finds_a_kernel_thread";
    const BLOCKED: usize = 24;
    alone(NAME, || {
        // A runtime begins without kernel threads that wait.
        for _ in 0..200 {
            let runtime = Runtime::builder().vps(2).events(Events::Off).build();
            runtime.expect("a runtime").run(|| {
                if one_to_one() {
                    return;
                }
                // None returns before all have begun.
                let all_in = Arc::new(std::sync::Barrier::new(BLOCKED));
                let blocked: Vec<_> = (0..BLOCKED)
                    .map(|_| {
                        let all_in = all_in.clone();
                        thread::spawn(move || thread::blocking(|| all_in.wait().is_leader()))
                    })
                    .collect();
                let ends = blocked.into_iter().map(|one| one.join().expect("no panic"));
                assert_eq!(ends.filter(|is_leader| *is_leader).count(), 1);
            });
        }
    });
}

#[test]
fn trimmed_stacks_return_their_memory() {
    on_two("trimmed_stacks_return_their_memory", || {
        if one_to_one() {
            return skip("trimmed_stacks_return_their_memory", "kernel threads have no pool");
        }
        let go = Arc::new(AtomicBool::new(false));
        let all: Vec<_> = (0..2000)
            .map(|_| {
                let go = go.clone();
                thread::spawn(move || {
                    while !go.load(SeqCst) {
                        thread::yield_now();
                    }
                })
            })
            .collect();
        go.store(true, SeqCst);
        for one in all {
            one.join().expect("no panic");
        }
        assert!(runtime::trim() > 0);
        // Trimmed stacks are usable again.
        let again: Vec<_> = (0..2000u64).map(|n| thread::spawn(move || n)).collect();
        assert_eq!(
            again.into_iter().map(|one| one.join().expect("no panic")).sum::<u64>(),
            1_999_000
        );
    });
}
