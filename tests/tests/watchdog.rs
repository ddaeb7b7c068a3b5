//! The runtime under the watchdog: application code can keep a virtual processor from working. The
//! tests check the report and the behaviour of the others, and that well-behaved code causes no
//! report.
#![cfg(not(kumihimo_asan))]

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use kumihimo::policy::{Info, Placement, Policy, Why};
use kumihimo::runtime::{
    Builder, Distrust, Events, NoEvents, OnMisbehaviour, Preemption, Runtime, metrics,
};
use kumihimo::thread::{self, Priority};
use kumihimo_events::source::open_one;
use kumihimo_tests::process::{Ended, again, finish, is_child, is_one_to_one, start};
use kumihimo_tests::{extent, skip};

const MODE: &str = "KUMI_WATCHDOG";

/// Runs a child process under each setting and checks its reports.
fn provoked(name: &str, case: &str, who: &str, function: &str, body: impl FnOnce()) {
    if is_child(name) {
        return body();
    }
    // Only one runtime can exist in a process at a time.
    static ONE_TO_ONE: LazyLock<bool> = LazyLock::new(is_one_to_one);
    if *ONE_TO_ONE {
        return skip(name, "microprocesses are kernel threads, without virtual processors");
    }
    let accused = |ended: &Ended| {
        let said = &ended.stderr;
        let reports: Vec<_> = said
            .lines()
            .filter(|line| line.contains("watchdog: ") && line.contains("kernel thread"))
            .collect();
        assert_eq!(reports.len(), 1, "{said}");
        assert!(
            reports[0].starts_with(&format!("kumihimo: watchdog: {case}: virtual processor ")),
            "{said}"
        );
        assert!(reports[0].contains(who), "{said}");
        assert!(
            said.lines().any(|line| line.starts_with("    ") && line.contains(function)),
            "{function} in the stack: {said}"
        );
    };
    let overridden = again(name, &[(MODE, "override=300")]);
    assert!(overridden.status.success(), "{overridden:#?}");
    accused(&overridden);
    let ended = again(name, &[(MODE, "end=300")]);
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{ended:#?}");
    accused(&ended);
}

fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn misbehaved() -> u64 {
    metrics().expect("a runtime runs").misbehaved
}

/// From a foreign kernel thread: checks that other microprocesses start, wait for each other, and
/// end.
fn others_go_on() {
    until(|| misbehaved() != 0);
    until(|| metrics().expect("a runtime runs").overridden != 0);
    for _ in 0..100 {
        let (sender, receiver) = kumihimo::sync::mpsc::channel();
        let reads = thread::spawn(move || receiver.recv().expect("it sends"));
        thread::spawn(move || sender.send(7).expect("a listening socket"))
            .join()
            .expect("no panic");
        assert_eq!(reads.join().expect("no panic"), 7);
    }
    // More microprocesses than a virtual processor keeps for itself. The surplus must not go to the
    // overridden VP.
    let spawns = || {
        let all: Vec<_> = (0..100).map(|_| thread::spawn(thread::yield_now)).collect();
        all.into_iter().for_each(|one| one.join().expect("no panic"));
    };
    thread::spawn(spawns).join().expect("no panic");
    assert_eq!(misbehaved(), 1);
}

#[inline(never)]
fn holds_its_guard(go: &AtomicBool) {
    let _quiet = NoEvents::new();
    while !go.load(SeqCst) {
        std::hint::spin_loop();
    }
}

#[test]
fn leaked_guard_is_reported() {
    provoked(
        "leaked_guard_is_reported",
        "mask never cleared",
        "'keeper'",
        "holds_its_guard",
        || {
            let runtime = Builder::new().vps(2).build().expect("a runtime");
            let go = Arc::new(AtomicBool::new(false));
            let its = go.clone();
            let keeper = thread::Builder::new()
                .name("keeper".into())
                .spawn(move || holds_its_guard(&its))
                .expect("memory");
            others_go_on();
            go.store(true, SeqCst);
            keeper.join().expect("no panic");
            drop(runtime);
        },
    );
}

/// A policy that reads a byte when a microprocess of priority 5 is placed, except on this test's
/// own kernel thread, which the watchdog does not watch.
struct Waits {
    pipe: std::io::PipeReader,
    has_begun: Arc<AtomicBool>,
}

#[inline(never)]
fn waits_in_the_policy(mut pipe: &std::io::PipeReader) {
    pipe.read_exact(&mut [0]).expect("a byte in the pipe");
}

impl Policy for Waits {
    fn name(&self) -> &str {
        "waits"
    }

    fn place(&self, info: &Info, why: Why) -> Placement {
        if info.priority.get() == 5 && why == Why::Woken && self.has_begun.load(SeqCst) {
            waits_in_the_policy(&self.pipe);
        }
        Placement { level: info.priority.get(), quantum: Duration::from_millis(5), key: None }
    }
}

#[test]
fn blocking_policy_is_reported() {
    provoked(
        "blocking_policy_is_reported",
        "user scheduler itself blocked",
        "kernel thread",
        "waits_in_the_policy",
        || {
            let (pipe, mut writer) = std::io::pipe().expect("a pipe");
            let has_begun = Arc::new(AtomicBool::new(false));
            let waits = Waits { pipe, has_begun: has_begun.clone() };
            let runtime = Builder::new().vps(2).policy(waits).build().expect("a runtime");
            let priority = Priority::new(5).expect("in range");
            let over = Arc::new(AtomicBool::new(false));
            let its = over.clone();
            let parks = move || {
                while !its.load(SeqCst) {
                    thread::park();
                }
            };
            let parks = thread::Builder::new().priority(priority).spawn(parks).expect("memory");
            let its = over.clone();
            let wakes = thread::spawn(move || {
                has_begun.store(true, SeqCst);
                // Wait until `parks` has really parked. Then this microprocess places it.
                while !parks.is_finished() {
                    parks.thread().unpark();
                    thread::sleep(Duration::from_millis(1));
                }
                assert!(its.load(SeqCst));
            });
            others_go_on();
            over.store(true, SeqCst);
            // More bytes than reads can follow.
            writer.write_all(&[0; 4096]).expect("a reader");
            wakes.join().expect("no panic");
            drop(runtime);
        },
    );
}

#[inline(never)]
fn loops_without_a_switch_point(go: &AtomicBool) {
    while !go.load(SeqCst) {
        std::hint::spin_loop();
    }
}

#[test]
fn lean_microprocess_that_never_yields_is_reported() {
    let name = "lean_microprocess_that_never_yields_is_reported";
    if open_one(Events::Watch, 1).is_err() {
        return skip(name, "event source watch is unavailable");
    }
    provoked(name, "no yield after Preempted", "'hog'", "loops_without_a_switch_point", || {
        // With `bpf`, the microprocess would be made to wait in the signal handler.
        let runtime = Builder::new()
            .vps(1)
            .events(Events::Watch)
            .preemption(Preemption::Signal(libc::SIGURG))
            .build()
            .expect("a runtime");
        let (go, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (its, says) = (go.clone(), runs.clone());
        // SAFETY: no switch point and no thread-local storage.
        let builder = unsafe { thread::Builder::new().name("hog".into()).lean(true) };
        let hog = builder.spawn(move || {
            says.store(true, SeqCst);
            loops_without_a_switch_point(&its);
        });
        until(|| runs.load(SeqCst));
        // The only virtual processor: this microprocess ends the loop after the VP has been taken
        // over.
        thread::spawn(move || go.store(true, SeqCst)).join().expect("no panic");
        hog.expect("memory").join().expect("no panic");
        until(|| misbehaved() == 1);
        drop(runtime);
    });
}

#[test]
fn well_behaved_scheduler_is_not_accused() {
    const NAME: &str = "well_behaved_scheduler_is_not_accused";
    if is_child(NAME) {
        return load();
    }
    let child = start(NAME, &[(MODE, "end=1000")]);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(100));
        for signal in [libc::SIGSTOP, libc::SIGCONT] {
            // SAFETY: an own child that has not been reaped, so its ID is valid.
            unsafe { libc::kill(child.id() as i32, signal) };
            std::thread::sleep(Duration::from_millis(1500));
        }
    }
    let ended = finish(NAME, child);
    assert!(ended.status.success() && !ended.stderr.contains("watchdog"), "{ended:#?}");
}

/// Microprocesses that compute, wait, block, hold guards briefly, and end, beside busy kernel
/// threads.
fn load() {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
        }
        Runtime::builder().vps(3).build().expect("a runtime").run(|| {
            for round in 0..extent(6, 2) {
                let all: Vec<_> = (0..60u64)
                    .map(|n| {
                        let priority = Priority::new((n * 7 % 64) as u8).expect("in range");
                        let body = move || match (n + round) % 6 {
                            0 => thread::sleep(Duration::from_millis(n)),
                            1 => thread::blocking(|| std::thread::sleep(Duration::from_millis(n))),
                            2 => std::thread::sleep(Duration::from_millis(n)),
                            3 => {
                                std::hint::black_box(
                                    (0..2_000_000u64).fold(n, |a, b| std::hint::black_box(a ^ b)),
                                );
                            }
                            4 => (0..1000).for_each(|_| thread::yield_now()),
                            _ => (0..1000).for_each(|_| drop(NoEvents::new())),
                        };
                        thread::Builder::new().priority(priority).spawn(body).expect("memory")
                    })
                    .collect();
                // No microprocess runs for a while, so the watchdog pauses and restarts.
                thread::sleep(Duration::from_millis(200));
                all.into_iter().for_each(|one| one.join().expect("no panic"));
            }
            // A lone microprocess that computes for long is not reported, because no other one
            // waits.
            let alone = (0..300_000_000u64).fold(0, |a, b| std::hint::black_box(a ^ b));
            assert_ne!(alone, 1);
            assert_eq!(misbehaved(), 0);
        });
        over.store(true, SeqCst);
    });
}

#[test]
fn invalid_watchdog_settings_are_refused() {
    let name = "invalid_watchdog_settings_are_refused";
    let is_loud = || std::env::var(MODE).is_ok_and(|mode| mode == "loud");
    if is_child(name) && is_loud() {
        let e = Builder::new().vps(1).build().expect_err("no such setting");
        assert_eq!(e.kind(), std::io::ErrorKind::InvalidInput);
        assert!(
            e.to_string().contains("KUMI_WATCHDOG=loud: expected")
                && e.to_string().contains("report, override or end"),
            "{e}"
        );
        return;
    }
    if is_child(name) {
        // A bound set in the program is clamped to the valid range.
        let distrust = Distrust { on: OnMisbehaviour::Report, bound: Duration::ZERO };
        assert_eq!(
            Builder::new().vps(1).on_misbehaviour(distrust).build().expect("a runtime").run(|| 7),
            7
        );
        return;
    }
    for mode in ["loud", ""] {
        let ended = again(name, &[(MODE, mode)]);
        assert!(ended.status.success(), "{ended:#?}");
    }
}
