//! User schedulers that violate the event protocol: the watchdog's report of each violation, the
//! progress of the other VPs, and the abort if so configured.
//!
//! Each test runs its user scheduler in a child process, whose stderr is read: this test program
//! once more, with `KUMI_TEST_CHILD`.
#![cfg(not(loom))]

#[path = "../examples/minimal/scheduler.rs"]
#[allow(dead_code)]
mod scheduler;

use std::io::{PipeReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kumihimo_events::kernel::Settings;
use kumihimo_events::limit::Limit;
use kumihimo_events::preempt::Means;
use kumihimo_events::sched::{Answer, UserScheduler};
use kumihimo_events::source::{self, Kind};
use kumihimo_events::watchdog::{Distrust, OnMisbehaviour, Violation};
use kumihimo_events::{Kernel, KernelThread};
use scheduler::{Scheduler, check, masked, yield_now};

/// Not the smallest possible bound: on a machine with hundreds of runnable threads, a single system
/// call may take that long.
const BOUND: Duration = Duration::from_millis(300);
const CHILD: &str = "KUMI_TEST_CHILD";
const MODE: &str = "KUMI_TEST_MODE";

fn is_child() -> bool {
    std::env::var(CHILD).is_ok()
}

fn mode() -> Distrust {
    let on = Distrust::from_name(&std::env::var(MODE).expect("set by `again`")).expect("known").on;
    // A well-behaved scheduler gets more time, since all cores are busy in that test.
    let bound = if on == OnMisbehaviour::Report { BOUND * 3 } else { BOUND };
    Distrust { on, bound }
}

fn command(name: &str, mode: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, name)
        .env(MODE, mode);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Runs the test `name` in a child process, once for each response of the watchdog. Checks the
/// report, and that the process continues or aborts. In the child, runs `body`.
fn provoked(name: &str, case: Violation, vp: u32, function: &str, body: impl FnOnce()) {
    if is_child() {
        return body();
    }
    for mode in ["override", "end"] {
        let output = command(name, mode).output().expect("a process");
        let said = String::from_utf8_lossy(&output.stderr);
        let reports: Vec<_> = said
            .lines()
            .filter(|line| {
                line.starts_with("kumihimo: watchdog: ") && line.contains("kernel thread")
            })
            .collect();
        assert_eq!(reports.len(), 1, "{mode}: {said}");
        assert!(
            reports[0].starts_with(&format!(
                "kumihimo: watchdog: {case}: virtual processor {vp}: kernel thread "
            )),
            "{mode}: {said}"
        );
        assert!(
            said.lines().any(|line| line.starts_with("    ") && line.contains(function)),
            "{mode}: {function} in the stack: {said}"
        );
        if mode == "end" {
            assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
        } else {
            assert!(output.status.success(), "{mode}: {} {said}", output.status);
        }
    }
}

fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Opens the minimal user scheduler, without preemption.
fn package(vps: u32) -> Arc<Scheduler> {
    let settings = Settings {
        vps,
        parked: 0,
        concurrency: 1,
        limit: Limit::asked(64, "the test"),
        source: Some(Kind::Off),
        preempt: Some(Means::Off),
        record: false,
    };
    let package = Scheduler::open(settings).expect("a scheduler");
    package.kernel().distrust(mode());
    package
}

/// Checks that other microprocesses start, switch and end after the report. Then calls `let_go`.
fn others_go_on(package: &Arc<Scheduler>, case: Violation, let_go: impl FnOnce()) {
    until(|| package.kernel().violations(case) != 0);
    for _ in 0..100 {
        let other = package.spawn(20, || {
            yield_now();
            7
        });
        assert_eq!(other.expect("memory").join().expect("no panic"), 7);
    }
    assert_eq!(package.kernel().counts().misbehaved, 1);
    assert_eq!(package.kernel().counts().overridden, 1);
    let_go();
}

#[inline(never)]
fn spins_while_masked(go: &AtomicBool) {
    while !go.load(SeqCst) {
        std::hint::spin_loop();
    }
}

/// Starts microprocesses until one runs on VP 0. That one runs the result of `body`, masked.
fn stays_on_vp_0<B: FnOnce() + Send + 'static>(package: &Arc<Scheduler>, body: impl Fn() -> B) {
    let vp = Arc::new(AtomicU32::new(u32::MAX));
    while vp.swap(u32::MAX, SeqCst) != 0 {
        let (its, body) = (vp.clone(), body());
        let begun = package.spawn(30, move || {
            masked(|thread| {
                let vp = thread.vp().expect("it runs");
                its.store(vp, SeqCst);
                if vp == 0 {
                    body();
                }
            });
        });
        drop(begun.expect("memory"));
        until(|| vp.load(SeqCst) != u32::MAX);
    }
}

#[test]
fn mask_never_cleared_is_reported() {
    provoked(
        "mask_never_cleared_is_reported",
        Violation::MaskNeverCleared,
        0,
        "spins_while_masked",
        || {
            let package = package(2);
            let go = Arc::new(AtomicBool::new(false));
            stays_on_vp_0(&package, || {
                let go = go.clone();
                move || spins_while_masked(&go)
            });
            others_go_on(&package, Violation::MaskNeverCleared, || go.store(true, SeqCst));
            package.wait();
        },
    );
}

#[inline(never)]
fn reads_while_masked(mut pipe: &PipeReader) {
    pipe.read_exact(&mut [0]).expect("a byte");
}

#[test]
fn blocked_scheduler_is_reported() {
    provoked(
        "blocked_scheduler_is_reported",
        Violation::SchedulerBlocked,
        0,
        "reads_while_masked",
        || {
            let package = package(2);
            let (reader, mut writer) = std::io::pipe().expect("a pipe");
            let reader = Arc::new(reader);
            stays_on_vp_0(&package, || {
                let reader = reader.clone();
                move || reads_while_masked(&reader)
            });
            others_go_on(&package, Violation::SchedulerBlocked, || {
                writer.write_all(&[0]).expect("a reader")
            });
            package.wait();
        },
    );
}

#[inline(never)]
fn never_comes_to_a_switch_point(go: &AtomicBool) {
    while !go.load(SeqCst) {
        std::hint::spin_loop();
    }
}

#[test]
fn preempted_microprocess_that_does_not_yield_is_reported() {
    provoked(
        "preempted_microprocess_that_does_not_yield_is_reported",
        Violation::NoYield,
        0,
        "never_comes_to_a_switch_point",
        || {
            let package = package(1);
            let (go, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (its, says) = (go.clone(), runs.clone());
            let low = package.spawn(10, move || {
                says.store(true, SeqCst);
                never_comes_to_a_switch_point(&its);
                check();
            });
            until(|| runs.load(SeqCst));
            // There is one VP: this microprocess ends the loop of the other one, once the VP was
            // taken from it.
            let high = package.spawn(50, move || go.store(true, SeqCst)).expect("memory");
            high.join().expect("no panic");
            low.expect("memory").join().expect("no panic");
            assert_eq!(package.kernel().violations(Violation::NoYield), 1);
            assert!(package.kernel().counts().hand_offs > 0);
            package.wait();
        },
    );
}

/// A user scheduler that runs a script on each VP. Its `blocked` for VP 0 returns only once it may.
#[derive(Default)]
struct Script {
    may_answer: AtomicBool,
    answered: [AtomicU64; 2],
    done: AtomicU32,
    again: Mutex<[u32; 2]>,
}

#[inline(never)]
fn does_not_answer(go: &AtomicBool) {
    while !go.load(SeqCst) {
        std::hint::spin_loop();
    }
}

impl UserScheduler for Script {
    fn thread(&self, _thread: &KernelThread, live: &mut dyn FnMut()) {
        live();
    }

    fn blocked(&self, vp: u32) -> Answer {
        if vp == 0 {
            does_not_answer(&self.may_answer);
        }
        self.answered[vp as usize].fetch_add(1, SeqCst);
        Answer::Next(None)
    }

    fn resumed(&self, vp: u32, thread: &KernelThread) {
        let times = {
            let mut again = self.again.lock().expect("not poisoned");
            again[vp as usize] += 1;
            again[vp as usize]
        };
        if times == 1 {
            assert!(thread.kernel().prepare(), "a spare is available");
            thread.lend();
            until(|| self.answered[vp as usize].load(SeqCst) != 0);
            while thread.take_back() {
                // The spare has not taken the VP yet.
                thread.lend();
            }
            thread.kernel().unbind();
        } else {
            thread.release_vp();
        }
        if vp == 1 && times == 2 {
            self.may_answer.store(true, SeqCst);
        }
        self.done.fetch_add(1, SeqCst);
    }

    fn unblocked(&self) {}
    fn notified(&self, _events: u32) {}
}

#[test]
fn blocked_never_answered_is_reported() {
    provoked(
        "blocked_never_answered_is_reported",
        Violation::BlockedNeverAnswered,
        0,
        "does_not_answer",
        || {
            let settings = Settings {
                vps: 2,
                parked: 0,
                concurrency: 0,
                limit: Limit::asked(8, "the test"),
                source: Some(Kind::Off),
                preempt: Some(Means::Off),
                record: false,
            };
            let kernel = Kernel::open(settings).expect("a kernel's half");
            let user = Arc::new(Script::default());
            let known: Arc<dyn UserScheduler> = user.clone();
            kernel.init_sched(Arc::downgrade(&known));
            kernel.distrust(mode());
            kernel.resume(0, None).expect("a kernel thread");
            until(|| kernel.violations(Violation::BlockedNeverAnswered) != 0);
            kernel.resume(1, None).expect("a kernel thread");
            // Each VP is resumed twice: VP 1 although the thread that handles its *Blocked* may be
            // stuck, VP 0 once that thread has returned.
            until(|| user.done.load(SeqCst) == 4);
            assert_eq!(kernel.counts().overridden, 1);
            kernel.dismiss();
            while kernel.await_end(|| 0, Duration::from_secs(1)) > 0 {}
            kernel.join();
        },
    );
}

/// Blocks, switches, busy kernel threads and stopped processes are no violations.
#[test]
fn well_behaved_scheduler_is_not_accused() {
    const NAME: &str = "well_behaved_scheduler_is_not_accused";
    if !is_child() {
        let mut child = command(NAME, "report").spawn().expect("a process");
        for _ in 0..3 {
            std::thread::sleep(BOUND);
            for signal in [libc::SIGSTOP, libc::SIGCONT] {
                // SAFETY: a child that was not waited for, so that its ID is not reused.
                unsafe { libc::kill(child.id() as i32, signal) };
                std::thread::sleep(BOUND * 2);
            }
        }
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert!(child.wait().expect("it ends").success(), "{said}");
        assert!(!said.contains("watchdog"), "{said}");
        return;
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
        }
        for source in [Kind::Bpf, Kind::Perf, Kind::Watch] {
            if source::open_one(source, 8).is_err() {
                continue;
            }
            let settings = Settings {
                vps: 2,
                parked: 0,
                concurrency: 1,
                limit: Limit::asked(64, "the test"),
                source: Some(source),
                preempt: Some(Means::Off),
                record: false,
            };
            let package = Scheduler::open(settings).expect("a scheduler");
            package.kernel().distrust(mode());
            let all: Vec<_> = (0..30u8)
                .map(|n| {
                    package.spawn(n, move || {
                        for round in 0..300 {
                            match round % 3 {
                                0 => std::thread::sleep(Duration::from_micros(u64::from(n) * 50)),
                                1 => yield_now(),
                                _ => check(),
                            }
                        }
                    })
                })
                .collect();
            // Afterwards nothing runs for a while: the watchdog goes to sleep, and is woken again.
            for one in all {
                one.expect("memory").join().expect("no panic");
            }
            std::thread::sleep(BOUND * 3);
            package
                .spawn(1, || std::thread::sleep(BOUND * 2))
                .expect("memory")
                .join()
                .expect("no panic");
            assert_eq!(package.kernel().counts().misbehaved, 0);
            package.wait();
        }
        over.store(true, SeqCst);
    });
    assert_eq!(mode().on, OnMisbehaviour::Report);
}
