//! The dump of all microprocesses: on request, by a signal, and at a deadlock.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::runtime::{OnDeadlock, Runtime, dump, metrics};
use kumihimo::sync::{Barrier, mpsc};
use kumihimo::thread::{self, JoinHandle};
use kumihimo_tests::process::{again, alone, is_child, is_one_to_one, send_signal, start};
use kumihimo_tests::skip;
use rustix::process::Signal;

#[inline(never)]
fn parks_here() {
    thread::park();
    std::hint::black_box(0);
}

#[inline(never)]
fn receives_here(from: &mpsc::Receiver<u32>) -> u32 {
    std::hint::black_box(from.recv().expect("a number"))
}

#[inline(never)]
fn yields_here() {
    thread::yield_now();
    std::hint::black_box(0);
}

#[inline(never)]
fn blocks_here(reader: &mut std::io::PipeReader) {
    assert_eq!(std::hint::black_box(reader.read(&mut [0]).expect("a pipe")), 1);
}

#[inline(never)]
fn loops_here(end: &AtomicBool) {
    while !end.load(SeqCst) {
        std::hint::spin_loop();
    }
}

#[inline(never)]
fn waits_at(barrier: &Barrier) {
    barrier.wait();
    std::hint::black_box(0);
}

fn named<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().name(name.into()).spawn(f).expect("a microprocess")
}

fn dumped() -> String {
    let mut out = Vec::new();
    dump(&mut out).expect("memory takes all");
    String::from_utf8(out).expect("UTF-8")
}

/// The lines about one microprocess.
fn about<'a>(said: &'a str, name: &str) -> Vec<&'a str> {
    let head = format!(" {name}: ");
    let mut lines = said
        .lines()
        .skip_while(|line| !(line.starts_with("microprocess ") && line.contains(&head)));
    let first = lines.next();
    first.into_iter().chain(lines.take_while(|line| line.starts_with("  "))).collect()
}

#[track_caller]
fn is_told(said: &str, name: &str, state: &str, function: &str) {
    let lines = about(said, name);
    assert!(lines.first().is_some_and(|head| head.contains(state)), "{name}: {state}\n{said}");
    assert!(lines.iter().any(|line| line.contains(function)), "{name}: {function}\n{said}");
}

#[test]
fn dump_lists_suspended_microprocesses() {
    const NAME: &str = "dump_lists_suspended_microprocesses";
    alone(NAME, || {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            if metrics().expect("it runs").tls == "kernel" {
                return skip(NAME, "kernel threads are not suspended");
            }
            // The requesting microprocess must not end, however often it is preempted.
            static ENOUGH: AtomicBool = AtomicBool::new(false);
            let held = named("held", || {
                while !ENOUGH.load(SeqCst) {
                    yields_here();
                }
            });
            let waits = named("waits", parks_here);
            thread::yield_now();
            for one in [&held, &waits] {
                assert_eq!(one.thread().suspend().expect("a microprocess"), thread::Suspended::Now);
            }
            // One microprocess was queued and is set aside as suspended.
            thread::yield_now();
            let said = dumped();
            is_told(&said, "held", "suspended until it is resumed; ", "yields_here");
            is_told(&said, "waits", "waits for an unpark; ", "parks_here");
            for name in ["held", "waits"] {
                assert!(about(&said, name)[0].ends_with(", suspended"), "{said}");
            }
            waits.thread().unpark();
            ENOUGH.store(true, SeqCst);
            for one in [held, waits] {
                assert!(one.thread().resume().expect("a microprocess"));
                one.join().expect("no panic");
            }
        });
    });
}

#[test]
fn dump_on_request_shows_every_state() {
    const NAME: &str = "dump_on_request_shows_every_state";
    alone(NAME, || {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            if metrics().expect("it runs").tls == "kernel" {
                assert!(dumped().contains("microprocesses are kernel threads here"));
                return;
            }
            let (sender, receiver) = mpsc::channel();
            let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
            let parks = named("parks", parks_here);
            let receives = named("receives", move || receives_here(&receiver));
            let blocks = named("blocks", move || thread::blocking(|| blocks_here(&mut reader)));
            while metrics().expect("it runs").bound == 0 {
                thread::yield_now();
            }
            let yields = named("yields", yields_here);
            // Never yields, so it occupies the only virtual processor and the others stay queued.
            let over = Arc::new(AtomicBool::new(false));
            let end = over.clone();
            let (seen, text) =
                (Arc::new(AtomicBool::new(false)), Arc::new(std::sync::Mutex::new(String::new())));
            let begun = seen.clone();
            let runs = named("runs", move || {
                thread::yield_now();
                seen.store(true, SeqCst);
                loops_here(&end);
            });
            let to = text.clone();
            // A kernel thread requests the dump, once the microprocess runs.
            let asks = std::thread::spawn(move || {
                while !begun.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                *to.lock().expect("not poisoned") = dumped();
                over.store(true, SeqCst);
            });
            runs.join().expect("no panic");
            asks.join().expect("no panic");
            let said = text.lock().expect("not poisoned").clone();
            is_told(&said, "parks", "waits for an unpark", "parks_here");
            is_told(&said, "receives", "waits for the channel at 0x", "receives_here");
            // Without preemption, nothing interrupts the computing microprocess.
            let means = metrics().expect("it runs").preemption;
            is_told(
                &said,
                "runs",
                "runs on kernel thread",
                if means == "off" { "" } else { "loops_here" },
            );
            is_told(&said, "blocks", "bound to kernel thread", "without a VP");
            assert!(about(&said, "main")[0].contains("priority 32"), "{said}");
            // Frames of the runtime below a wait are folded into the called function, and the
            // frames that start a microprocess are omitted.
            let lines = about(&said, "parks");
            assert!(
                !lines
                    .iter()
                    .any(|line| line.contains("catch_unwind") || line.contains("switch_fs")),
                "{said}"
            );
            // A microprocess requests the dump.
            let said = dumped();
            is_told(&said, "main", "bound to kernel thread", "without a VP");
            is_told(&said, "parks", "waits for an unpark", "parks_here");
            parks.thread().unpark();
            sender.send(5).expect("a listening socket");
            writer.write_all(b"x").expect("it reads");
            for each in [parks, blocks, yields] {
                each.join().expect("no panic");
            }
            assert_eq!(receives.join().expect("no panic"), 5);
        });
        assert!(is_one_to_one() || dumped().contains("no runtime runs"));
    });
}

/// Stacks are read while their microprocesses run, end and start.
#[test]
fn dump_while_microprocesses_run() {
    const NAME: &str = "dump_while_microprocesses_run";
    alone(NAME, || {
        let over = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(AtomicU64::new(0));
        let runtime = Runtime::builder().vps(2).build().expect("a runtime");
        let (end, dumps) = (over.clone(), rounds.clone());
        let asks = std::thread::spawn(move || {
            while !end.load(SeqCst) {
                let said = dumped();
                assert!(said.contains("kumihimo: "), "{said}");
                dumps.fetch_add(1, SeqCst);
            }
        });
        runtime.run(|| {
            while rounds.load(SeqCst) < 10 {
                let (sender, receiver) = mpsc::channel();
                let all: Vec<_> = (0..50u64)
                    .map(|i| {
                        let sender = sender.clone();
                        thread::spawn(move || {
                            (0..20).for_each(|k| {
                                sender.send(i * k).expect("a listening socket");
                                thread::yield_now();
                            });
                        })
                    })
                    .collect();
                drop(sender);
                assert_eq!(receiver.iter().sum::<u64>(), 190 * 1225);
                all.into_iter().for_each(|each| each.join().expect("no panic"));
            }
            over.store(true, SeqCst);
            asks.join().expect("no panic");
        });
    });
}

/// Every virtual processor is busy indefinitely: the dump must not need one.
#[test]
fn dump_by_signal_while_all_vps_compute() {
    const NAME: &str = "dump_by_signal_while_all_vps_compute";
    if is_child(NAME) {
        return Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            let parked = named("parks", parks_here);
            thread::yield_now();
            named("computes", || {
                println!("computes");
                loop {
                    std::hint::spin_loop();
                }
            });
            parked.join().expect("never");
        });
    }
    if is_one_to_one() {
        return skip(NAME, "a dump does not describe kernel threads");
    }
    let mut child = start(NAME, &[("KUMI_DUMP_SIGNAL", "USR2")]);
    let mut says = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.trim_end().ends_with("computes") {
        line.clear();
        assert_ne!(says.read_line(&mut line).expect("a pipe"), 0, "it ended");
    }
    // Twice: the process continues after a dump.
    for _ in 0..2 {
        send_signal(child.id(), Signal::USR2).expect("the process exists");
        let mut said = String::new();
        while !said.contains("\nkumihimo: ") || !said.ends_with("microprocesses\n") {
            assert_ne!(errors.read_line(&mut said).expect("a pipe"), 0, "it ended: {said}");
        }
        is_told(&said, "parks", "waits for an unpark", "parks_here");
        // The microprocess has no virtual processor if its last write took a moment.
        assert!(about(&said, "computes")[0].contains(" kernel thread "), "{said}");
    }
    child.kill().expect("it lives");
    child.wait().expect("it ends");
}

#[test]
fn dump_at_a_deadlock() {
    const NAME: &str = "dump_at_a_deadlock";
    if is_child(NAME) {
        let runtime =
            Runtime::builder().vps(2).on_deadlock(OnDeadlock::Abort).build().expect("a runtime");
        return runtime.run(|| waits_at(&Barrier::new(2)));
    }
    if is_one_to_one() {
        return skip(NAME, "a deadlock is not reported where microprocesses are kernel threads");
    }
    let ended = again(NAME, &[]);
    assert!(!ended.status.success());
    let (first, traces) =
        ended.stderr.split_once("kumihimo: where they wait:").expect("the report");
    assert!(first.contains("main waits for the barrier at 0x"), "{ended:#?}");
    assert!(
        traces.contains("main waits for the barrier at 0x") && traces.contains("waits_at"),
        "{ended:#?}"
    );
}

extern "C" fn nothing(_: i32) {}

#[test]
fn unusable_dump_signals_are_refused() {
    const NAME: &str = "unusable_dump_signals_are_refused";
    if is_child(NAME) {
        let said = |builder: kumihimo::runtime::Builder| {
            builder.build().expect_err("not to be had").to_string()
        };
        let builder = || Runtime::builder().vps(1);
        if std::env::var("KUMI_DUMP_SIGNAL").is_ok() {
            println!("{}", said(builder()));
            return;
        }
        for signal in [0, -1, 1000, libc::SIGKILL, libc::SIGSEGV, libc::SIGTRAP] {
            assert!(
                said(builder().dump_signal(signal)).contains("expected one of HUP"),
                "{signal}"
            );
        }
        // SAFETY: a handler that does nothing.
        unsafe {
            libc::signal(
                libc::SIGUSR1,
                nothing as extern "C" fn(i32) as *const () as libc::sighandler_t,
            )
        };
        assert!(said(builder().dump_signal(libc::SIGUSR1)).contains("has a handler already"));
        drop(builder().dump_signal(libc::SIGUSR2).build().expect("a runtime"));
        drop(builder().dump_signal(libc::SIGUSR2).build().expect("the same again"));
        assert!(said(builder().dump_signal(libc::SIGQUIT)).contains("already"));
        // Without a runtime, the dump reports only that. In a forked child it prints nothing.
        // SAFETY: the child ends at once, and does what is async-signal-safe only.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::raise(libc::SIGUSR2);
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
        }
        return;
    }
    for wrong in ["nonsense", "KILL", "SEGV", "RTMIN+99"] {
        let ended = again(NAME, &[("KUMI_DUMP_SIGNAL", wrong)]);
        assert!(ended.status.success(), "{ended:#?}");
        assert!(
            ended.stdout.contains(&format!("KUMI_DUMP_SIGNAL={wrong}: expected HUP")),
            "{ended:#?}"
        );
    }
    let ended = again(NAME, &[]);
    assert!(ended.status.success() && !ended.stderr.contains("no runtime runs"), "{ended:#?}");
}
