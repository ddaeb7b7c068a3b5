//! Waits that are no deadlock although no microprocess runs, and deadlocks although something is
//! armed. For the report itself, see last_words.rs.
//!
//! Each test waits for longer than the second after which a deadlock is reported: it passes if no
//! report appears.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};

use kumihimo::future;
use kumihimo::net::UnixStream;
use kumihimo::runtime::{OnDeadlock, Runtime, metrics};
use kumihimo::sync::{Barrier, Mutex, RwLock, Semaphore, mpsc};
use kumihimo::thread;
use kumihimo_tests::process::{Ended, again, alone, is_child, is_one_to_one, one_to_one};
use kumihimo_tests::skip;

const AT_THE_BARRIER: &str = "main waits for the barrier at 0x";
const LONGER: Duration = Duration::from_millis(1500);

fn sleeps() -> u64 {
    metrics().expect("it runs").vps.iter().map(|vp| vp.sleeps).sum()
}

/// Runs `wait` on one of two VPs. The other VP goes to sleep last, with nothing armed, because a
/// microprocess parks on it indefinitely.
fn while_another_goes_to_sleep_last(name: &str, wait: impl FnOnce() + Send) {
    alone(name, || {
        let runtime =
            Runtime::builder().vps(2).on_deadlock(OnDeadlock::Abort).build().expect("a runtime");
        runtime.run(|| {
            let (waits, over) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (seen, end) = (waits.clone(), over.clone());
            let other = thread::spawn(move || {
                while !seen.load(SeqCst) {
                    thread::yield_now();
                }
                let before = sleeps();
                while !one_to_one() && sleeps() == before && !end.load(SeqCst) {
                    thread::yield_now();
                }
                thread::park();
            });
            // Runs until an idle VP sleeps: the VP on which `wait` waits.
            waits.store(true, SeqCst);
            wait();
            over.store(true, SeqCst);
            while !other.is_finished() {
                other.thread().unpark();
                thread::yield_now();
            }
            other.join().expect("no panic");
        });
    });
}

#[test]
fn park_with_a_deadline_is_not_reported_as_a_deadlock() {
    while_another_goes_to_sleep_last("park_with_a_deadline_is_not_reported_as_a_deadlock", || {
        let until = Instant::now() + LONGER;
        while Instant::now() < until {
            thread::park_timeout(until - Instant::now());
        }
    });
}

#[test]
fn lock_with_a_deadline_is_not_reported_as_a_deadlock() {
    while_another_goes_to_sleep_last("lock_with_a_deadline_is_not_reported_as_a_deadlock", || {
        assert!(Semaphore::new(0).acquire_timeout(LONGER).is_none());
    });
}

#[test]
fn sleep_is_not_reported_as_a_deadlock() {
    while_another_goes_to_sleep_last("sleep_is_not_reported_as_a_deadlock", || {
        thread::sleep(LONGER)
    });
}

/// A suspended microprocess may be resumed. After that, the deadlock must still be detected.
#[test]
fn waiting_for_a_suspended_microprocess_is_not_reported_as_a_deadlock() {
    const NAME: &str = "waiting_for_a_suspended_microprocess_is_not_reported_as_a_deadlock";
    alone(NAME, || {
        if is_one_to_one() {
            return skip(NAME, "kernel threads are not suspended");
        }
        for parked in [false, true] {
            let runtime = Runtime::builder()
                .vps(2)
                .on_deadlock(OnDeadlock::Abort)
                .build()
                .expect("a runtime");
            runtime.run(|| {
                let stopped = thread::spawn(move || {
                    if parked {
                        thread::park();
                    } else {
                        let _ = thread::current().suspend().expect("a microprocess");
                    }
                });
                if parked {
                    assert_ne!(
                        stopped.thread().suspend().expect("a microprocess"),
                        thread::Suspended::Gone
                    );
                    stopped.thread().unpark();
                }
                let one = stopped.thread().clone();
                let resumes = std::thread::spawn(move || {
                    std::thread::sleep(LONGER);
                    assert!(one.resume().expect("a microprocess"));
                });
                // From here on, all living microprocesses wait, and no timer is armed.
                stopped.join().expect("no panic");
                thread::blocking(|| resumes.join()).expect("no panic");
            });
        }
    });
}

#[test]
fn waiting_for_a_descriptor_is_not_reported_as_a_deadlock() {
    let (mut near, far) = UnixStream::pair().expect("a pair");
    while_another_goes_to_sleep_last(
        "waiting_for_a_descriptor_is_not_reported_as_a_deadlock",
        move || {
            let writer = std::thread::spawn(move || {
                let mut far = far;
                std::thread::sleep(LONGER);
                far.write_all(b"x").expect("it reads");
            });
            let mut byte = [0];
            near.read_exact(&mut byte).expect("it writes");
            writer.join().expect("no panic");
        },
    );
}

#[test]
fn waiting_for_a_future_is_not_reported_as_a_deadlock() {
    while_another_goes_to_sleep_last("waiting_for_a_future_is_not_reported_as_a_deadlock", || {
        let mut waker = None;
        future::block_on(poll_fn(|context| {
            if waker.is_some() {
                return Poll::Ready(());
            }
            let called = waker.insert(context.waker().clone()).clone();
            std::thread::spawn(move || {
                std::thread::sleep(LONGER);
                called.wake();
            });
            Poll::Pending
        }));
    });
}

#[test]
fn blocking_call_is_not_reported_as_a_deadlock() {
    while_another_goes_to_sleep_last("blocking_call_is_not_reported_as_a_deadlock", || {
        thread::blocking(|| std::thread::sleep(LONGER));
    });
}

/// Runs `body`, which deadlocks, and checks the report.
fn is_reported(name: &str, said: &str, body: impl FnOnce() + Send) {
    if is_child(name) {
        let runtime =
            Runtime::builder().vps(2).on_deadlock(OnDeadlock::Abort).build().expect("a runtime");
        return runtime.run(body);
    }
    if is_one_to_one() {
        return skip(
            name,
            "the runtime does not control waits where microprocesses are kernel threads",
        );
    }
    let Ended { status, stderr, .. } = again(name, &[]);
    assert!(!status.success() && stderr.contains(said), "{status}\n{stderr}");
}

#[test]
fn ended_wait_with_a_deadline_hides_no_deadlock() {
    is_reported("ended_wait_with_a_deadline_hides_no_deadlock", AT_THE_BARRIER, || {
        let (sender, receiver) = mpsc::channel();
        let done = Arc::new(Mutex::new(()));
        let waits = thread::spawn(move || {
            let _held = done.lock().expect("not poisoned");
            receiver.recv_timeout(Duration::from_secs(3600)).expect("a message")
        });
        thread::yield_now();
        sender.send(()).expect("it waits");
        waits.join().expect("no panic");
        Barrier::new(2).wait();
    });
}

#[test]
fn unwaited_descriptor_hides_no_deadlock() {
    is_reported("unwaited_descriptor_hides_no_deadlock", AT_THE_BARRIER, || {
        let (mut near, mut far) = UnixStream::pair().expect("a pair");
        let reads = thread::spawn(move || {
            near.read_exact(&mut [0]).expect("it writes");
            near
        });
        thread::yield_now();
        far.write_all(b"x").expect("it reads");
        let _open = (reads.join().expect("no panic"), far);
        Barrier::new(2).wait();
    });
}

/// Readers are counted but not identified. Unlike a recursive write lock, an upgrade from read to
/// write is therefore not refused.
#[test]
fn reader_that_upgrades_to_writer_is_a_deadlock() {
    is_reported(
        "reader_that_upgrades_to_writer_is_a_deadlock",
        "main waits for the rwlock at 0x",
        || {
            let lock = RwLock::new(());
            let _read = lock.read().expect("not poisoned");
            assert!(lock.try_write().is_err());
            drop(lock.write());
        },
    );
}

/// Runs `body` in a process whose runtime reports deadlocks, and asserts that it reports none.
fn is_not_reported(name: &str, body: impl FnOnce()) {
    if is_child(name) {
        return body();
    }
    let ended = again(name, &[]);
    assert!(ended.status.success() && !ended.stderr.contains("deadlock"), "{}", ended.told());
}

/// A worker that waits for its jobs, which the caller's thread sends after `before`.
fn worker_waits_for_a_thread(before: impl FnOnce()) {
    let (jobs, worker) = mpsc::channel::<u32>();
    let worker = thread::spawn(move || worker.iter().sum::<u32>());
    before();
    jobs.send(3).expect("the worker waits");
    drop(jobs);
    assert_eq!(worker.join().expect("no panic"), 3);
}

#[test]
fn computing_kernel_thread_is_not_reported_as_a_deadlock() {
    is_not_reported("computing_kernel_thread_is_not_reported_as_a_deadlock", || {
        worker_waits_for_a_thread(|| {
            let begin = Instant::now();
            while begin.elapsed() < 2 * LONGER {
                std::hint::spin_loop();
            }
        });
    });
}

#[test]
fn sleeping_kernel_thread_is_not_reported_as_a_deadlock() {
    is_not_reported("sleeping_kernel_thread_is_not_reported_as_a_deadlock", || {
        worker_waits_for_a_thread(|| std::thread::sleep(2 * LONGER));
    });
}

/// The thread that will wake the worker has never used the runtime.
#[test]
fn kernel_thread_that_waits_for_another_one_is_not_reported_as_a_deadlock() {
    const NAME: &str = "kernel_thread_that_waits_for_another_one_is_not_reported_as_a_deadlock";
    is_not_reported(NAME, || {
        worker_waits_for_a_thread(|| {
            let sleeper = std::thread::spawn(|| std::thread::sleep(2 * LONGER));
            sleeper.join().expect("no panic");
        });
    });
}

#[test]
fn deadlock_with_kernel_threads_that_wait_as_well_is_reported() {
    const NAME: &str = "deadlock_with_kernel_threads_that_wait_as_well_is_reported";
    if is_child(NAME) {
        let (_keeps, waits) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || waits.recv());
        let runtime = Runtime::builder().vps(2).on_deadlock(OnDeadlock::Abort).build();
        return runtime.expect("a runtime").run(thread::park);
    }
    if is_one_to_one() {
        return skip(NAME, "1:1: no deadlock is reported");
    }
    let ended = again(NAME, &[]);
    assert!(
        !ended.status.success() && ended.stderr.contains("deadlock: all 1"),
        "{}",
        ended.told()
    );
}
