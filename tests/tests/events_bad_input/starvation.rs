//! The limit on kernel threads: all VPs are served while one kernel thread is left, and a deadlock
//! is reported.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kumihimo::runtime::{Events, OnDeadlock, Runtime, metrics};
use kumihimo::sync::mpsc;
use kumihimo::thread;
use kumihimo_events::limit::Limit;
use kumihimo_tests::control_group::{ControlGroup, join_group};
use kumihimo_tests::process::{Ended, again, alone, is_child, one_to_one};
use kumihimo_tests::skip;
use kumihimo_tests::user::{become_user, own_user};

use crate::blocked::{begin, block, create_stacks};
use crate::under::{ALL, under, well, well_and_said_once, with_vps};

/// The last kernel thread serves the timers and queues of both VPs.
#[test]
fn last_kernel_thread_serves_all_vps() {
    let body = |_| {
        Runtime::builder().vps(2).max_kernel_threads(4).build().expect("a runtime").run(|| {
            if one_to_one() {
                return eprintln!("\n[skip] microprocesses are kernel threads here");
            }
            for _ in 0..5 {
                let readers = begin(3);
                while !readers.all_read() {
                    thread::sleep(Duration::from_millis(1));
                }
                let all: Vec<_> = (0..8u64)
                    .map(|n| {
                        let (ask, asked) = mpsc::channel::<mpsc::Sender<u64>>();
                        let answers = thread::spawn(move || {
                            while let Ok(to) = asked.recv() {
                                thread::sleep(Duration::from_micros(200));
                                to.send(n).expect("it waits");
                            }
                        });
                        let asks = thread::spawn(move || {
                            for _ in 0..10 {
                                let (to, answer) = mpsc::channel();
                                ask.send(to).expect("a listening socket");
                                assert_eq!(answer.recv(), Ok(n));
                                thread::sleep(Duration::from_micros(100 * n));
                            }
                        });
                        (answers, asks)
                    })
                    .collect();
                for (answers, asks) in all {
                    asks.join().expect("no panic");
                    answers.join().expect("no panic");
                }
                assert!(metrics().expect("it runs").kernel_threads <= 4);
                readers.blocked.release();
            }
        });
    };
    let said = well_and_said_once(
        "the limit of 4 kernel threads (Builder::max_kernel_threads) is reached",
    );
    under("starvation::last_kernel_thread_serves_all_vps", &ALL, body, said);
}

/// A microprocess sleeps in the runtime while it holds a std lock. The waiters for the lock occupy
/// every kernel thread.
#[test]
fn deadlock_at_the_limit_is_reported() {
    let body = |_| {
        let builder =
            Runtime::builder().vps(2).max_kernel_threads(6).on_deadlock(OnDeadlock::Abort);
        builder.build().expect("a runtime").run(|| {
            if one_to_one() {
                return eprintln!("\n[skip] microprocesses are kernel threads here");
            }
            let lock = Arc::new(Mutex::new(0));
            let (holds, held) = mpsc::channel();
            let of = lock.clone();
            let holder = thread::Builder::new().name("holder".into()).spawn(move || {
                let mut count = of.lock().expect("no panic");
                holds.send(()).expect("it is awaited");
                thread::sleep(Duration::from_secs(1));
                *count += 1;
            });
            held.recv().expect("it lives");
            let wants = |n: usize| {
                let lock = lock.clone();
                let one = thread::Builder::new().name(format!("wants {n}"));
                one.spawn(move || *lock.lock().expect("no panic") += 1).expect("memory")
            };
            let others: Vec<_> = (0..30).map(wants).collect();
            holder.expect("memory").join().expect("no panic");
            others.into_iter().for_each(|one| one.join().expect("no panic"));
            assert_eq!(*lock.lock().expect("no panic"), 31);
        });
    };
    let told = |source: Events, ended: &kumihimo_tests::process::Ended| {
        let said = &ended.stderr;
        if said.contains("[skip]") {
            return;
        }
        assert!(!ended.status.success(), "under {source}: {said}");
        for words in [
            "kumihimo: deadlock: the limit of 6 kernel threads (Builder::max_kernel_threads) is reached",
            "microprocesses are runnable",
            "and holds virtual processor ",
            "wants ",
        ] {
            assert!(said.contains(words), "under {source}, {words:?}: {said}");
        }
    };
    under("starvation::deadlock_at_the_limit_is_reported", &ALL, body, told);
}

/// Without an event source a wait in a lock of std keeps the only VP, on which the sender would
/// run.
#[test]
fn deadlock_without_a_source_is_reported() {
    let body = |_| {
        let builder = Runtime::builder().vps(1).on_deadlock(OnDeadlock::Abort);
        builder.build().expect("a runtime").run(|| {
            if one_to_one() {
                return eprintln!("\n[skip] microprocesses are kernel threads here");
            }
            let (sends, receives) = std::sync::mpsc::channel();
            let sender = thread::spawn(move || sends.send(7).expect("it is awaited"));
            assert_eq!(receives.recv(), Ok(7));
            sender.join().expect("no panic");
        });
    };
    let told = |source: Events, ended: &kumihimo_tests::process::Ended| {
        let said = &ended.stderr;
        if said.contains("[skip]") {
            return;
        }
        assert!(!ended.status.success(), "under {source}: {said}");
        for words in [
            "kumihimo: deadlock: calls outside of the runtime have held virtual processors for ",
            "1 microprocesses are runnable",
            "and holds virtual processor 0",
            "use another event source (KUMI_EVENTS)",
        ] {
            assert!(said.contains(words), "under {source}, {words:?}: {said}");
        }
    };
    under("starvation::deadlock_without_a_source_is_reported", &[Events::Off], body, told);
}

/// A thread outside of the runtime may end the wait.
#[test]
fn wait_for_another_thread_is_no_deadlock_without_a_source() {
    let body = |_| {
        let builder = Runtime::builder().vps(1).on_deadlock(OnDeadlock::Abort);
        builder.build().expect("a runtime").run(|| {
            let (sends, receives) = std::sync::mpsc::channel();
            let runnable = thread::spawn(|| ());
            let outside = std::thread::Builder::new().spawn(move || {
                // Longer than a deadlock is left unreported.
                std::thread::sleep(Duration::from_secs(3));
                sends.send(7).expect("it is awaited");
            });
            assert_eq!(receives.recv(), Ok(7));
            runnable.join().expect("no panic");
            outside.expect("a thread").join().expect("no panic");
        });
    };
    let check = |source, ended: &kumihimo_tests::process::Ended| {
        crate::under::well(source, ended);
        assert!(!ended.stderr.contains("deadlock"), "{}", ended.stderr);
    };
    let name = "starvation::wait_for_another_thread_is_no_deadlock_without_a_source";
    under(name, &[Events::Off], body, check);
}

/// Blocking calls that return must not be reported as a deadlock.
#[test]
fn returning_calls_free_kernel_threads_for_the_others() {
    let body = |_| {
        let builder =
            Runtime::builder().vps(2).max_kernel_threads(8).on_deadlock(OnDeadlock::Abort);
        builder.build().expect("a runtime").run(|| {
            let all: Vec<_> = (0..24)
                .map(|_| thread::spawn(|| std::thread::sleep(Duration::from_millis(600))))
                .collect();
            all.into_iter().for_each(|one| one.join().expect("no panic"));
        });
    };
    let check = |source, ended: &kumihimo_tests::process::Ended| {
        crate::under::well(source, ended);
        assert!(
            !ended.stderr.contains("deadlock") && !ended.stderr.contains("starved"),
            "{}",
            ended.stderr
        );
    };
    under("starvation::returning_calls_free_kernel_threads_for_the_others", &ALL, body, check);
}

/// Kernel threads that start after setuid(2) use the fallback source and can carry VPs.
#[test]
fn dropped_privileges_switch_to_the_fallback_source() {
    let body = |_| {
        with_vps(2, || {
            block(2).release();
            if !become_user(own_user()) {
                return eprintln!("\n[skip] not root");
            }
            for _ in 0..3 {
                block(20).release();
            }
            let now = metrics().expect("it runs");
            assert!(matches!(now.events_fallback, Some("perf" | "watch")), "{now:?}");
        });
    };
    let silent = |source: Events, ended: &Ended| {
        well(source, ended);
        assert!(!ended.stderr.contains("kumihimo:"), "under {source}: {}", ended.stderr);
    };
    under(
        "starvation::dropped_privileges_switch_to_the_fallback_source",
        &[Events::Bpf],
        body,
        silent,
    );
}

#[test]
fn environment_variable_sets_the_limit() {
    const NAME: &str = "starvation::environment_variable_sets_the_limit";
    if is_child(NAME) {
        let text = std::env::var("KUMI_KERNEL_THREADS").expect("the parent sets it");
        return match Runtime::builder().vps(1).build() {
            Err(e) => {
                let wanted = "expected a number of kernel threads, 1 to 1048576";
                assert_eq!(e.to_string(), format!("KUMI_KERNEL_THREADS={text}: {wanted}"));
                assert_ne!(text, "77");
            }
            Ok(runtime) => runtime.run(|| {
                let now = metrics().expect("it runs");
                let found = (now.kernel_thread_limit, &*now.kernel_thread_limit_by);
                assert!(one_to_one() || found == (77, "KUMI_KERNEL_THREADS"), "{found:?}");
                assert_eq!(text, "77");
            }),
        };
    }
    for text in ["77", "0", "many", "-1", "1048577"] {
        let ended = again(NAME, &[("KUMI_KERNEL_THREADS", text)]);
        assert!(ended.status.success(), "{text}: {}", ended.told());
    }
}

#[test]
fn control_group_sets_the_limit() {
    const NAME: &str = "starvation::control_group_sets_the_limit";
    if is_child(NAME) {
        let group = join_group().expect("the parent names it");
        Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            let now = metrics().expect("it runs");
            if one_to_one() {
                return eprintln!("\n[skip] microprocesses are kernel threads here");
            }
            assert!(now.kernel_thread_limit < 30, "{now:?}");
            assert!(
                now.kernel_thread_limit_by.contains(&format!("pids.max of {group}: 30")),
                "{now:?}"
            );
            create_stacks(60);
            // No microprocess returns until a kernel thread has been refused.
            let is_exhausted = || metrics().expect("it runs").exhausted != 0;
            let all: Vec<_> = (0..60)
                .map(|_| {
                    let waits = move || {
                        while !is_exhausted() {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    };
                    thread::spawn(move || thread::blocking(waits))
                })
                .collect();
            all.into_iter().for_each(|one| one.join().expect("no panic"));
        });
        return;
    }
    alone_in_group(NAME);
}

fn alone_in_group(name: &str) {
    let group = match ControlGroup::new(&["pids"]) {
        Ok(group) => group,
        Err(why) => return skip(name, &why),
    };
    group.limit_threads(30);
    let (variable, path) = group.variable();
    let ended = again(name, &[(variable, &path)]);
    assert!(ended.status.success(), "{}", ended.told());
    if !ended.stderr.contains("[skip]") {
        let cause = format!("pids.max of {path}: 30, of which ");
        assert_eq!(ended.stderr.matches(&cause).count(), 1, "{}", ended.told());
    }
}

/// Without a setting the machine's limit applies.
#[test]
fn default_limit_is_that_of_the_machine() {
    const NAME: &str = "starvation::default_limit_is_that_of_the_machine";
    alone(NAME, || {
        // Other processes of the control group may start and end threads between two measurements.
        // Only a limit that did not change around the start is compared.
        for _ in 0..100 {
            let before = Limit::of_machine();
            let runtime = Runtime::builder().vps(1).build().expect("a runtime");
            let found = runtime.run(|| {
                let now = metrics().expect("it runs");
                (!one_to_one()).then_some((now.kernel_thread_limit, now.kernel_thread_limit_by))
            });
            let Some(found) = found else { return };
            if Limit::of_machine() == before {
                assert_eq!(found, (before.threads, before.source.to_string()));
                return;
            }
        }
        panic!("the machine's limit kept changing");
    });
}
