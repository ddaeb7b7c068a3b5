//! Event source `off` hands no VP over: programs that hold every VP by spinning or by calls outside
//! of the runtime get a report that names the cause.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use kumihimo::runtime::{OnDeadlock, Runtime};
use kumihimo::thread;
use kumihimo_tests::process::{again, is_child, is_one_to_one};
use kumihimo_tests::skip;

const OFF: (&str, &str) = ("KUMI_EVENTS", "off");

/// Runs `body`, which takes the number of VPs, in a child with one VP and in one with two. Returns
/// what each child printed to standard error, and whether it succeeded.
fn under_off(name: &str, body: fn(usize)) -> Vec<(bool, String)> {
    if is_child(name) {
        let vps = std::env::var("KUMI_TEST_VPS").expect("the parent sets it");
        let vps = vps.parse().expect("a number");
        let builder = Runtime::builder().vps(vps).on_deadlock(OnDeadlock::Abort);
        builder.build().expect("a runtime").run(|| body(vps));
        return Vec::new();
    }
    if is_one_to_one() {
        skip(name, "microprocesses are kernel threads here, which the kernel schedules");
        return Vec::new();
    }
    let run = |vps| {
        let ended = again(name, &[OFF, ("KUMI_TEST_VPS", vps)]);
        (ended.status.success(), ended.stderr)
    };
    ["1", "2"].map(run).into()
}

/// Each VP waits for a lock of std, and its holder is runnable.
#[test]
fn deadlock_by_blocking_calls_is_reported_with_its_places() {
    let name = "deadlock_by_blocking_calls_is_reported_with_its_places";
    let ended = under_off(name, |_| {
        let lock = Arc::new(Mutex::new(()));
        let _held = lock.lock().expect("no panic");
        // Until a waiter holds this VP as well.
        loop {
            let lock = lock.clone();
            drop(thread::spawn(move || drop(lock.lock())));
            thread::yield_now();
        }
    });
    for (success, stderr) in ended {
        assert!(!success, "the report ends the process: {stderr}");
        assert!(stderr.contains("deadlock: event source `off` hands no virtual"), "{stderr}");
        assert!(stderr.contains("futex") && stderr.contains("thread::blocking"), "{stderr}");
    }
}

/// Each VP spins, and the microprocess that ends that is runnable.
#[test]
fn spinning_on_every_vp_is_reported() {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    let ended = under_off("spinning_on_every_vp_is_reported", |vps| {
        // A kernel thread ends the loops after the report.
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(8));
            REPORTED.store(true, Ordering::SeqCst);
        });
        let spin = || {
            while !REPORTED.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
        };
        let spinners: Vec<_> = (0..=vps).map(|_| thread::spawn(spin)).collect();
        spinners.into_iter().for_each(|one| one.join().expect("no panic"));
    });
    for (success, stderr) in ended {
        assert!(success, "{stderr}");
        assert!(stderr.contains("starvation: event source `off` hands no virtual"), "{stderr}");
        assert!(stderr.contains("computes") && stderr.contains("yield_now"), "{stderr}");
    }
}

/// A call that waits for a kernel thread of the program ends, however long it takes.
#[test]
fn call_that_a_kernel_thread_ends_is_no_deadlock() {
    let ended = under_off("call_that_a_kernel_thread_ends_is_no_deadlock", |vps| {
        let (sender, receiver) = mpsc::channel();
        let receiver = Arc::new(Mutex::new(receiver));
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(3));
            (0..=vps).for_each(|n| sender.send(n).expect("they wait"));
        });
        let waiters: Vec<_> = (0..=vps)
            .map(|_| {
                let receiver = receiver.clone();
                thread::spawn(move || receiver.lock().expect("no panic").recv())
            })
            .collect();
        assert!(waiters.into_iter().all(|one| one.join().is_ok_and(|r| r.is_ok())));
    });
    for (success, stderr) in ended {
        assert!(success && !stderr.contains("deadlock"), "{stderr}");
    }
}
