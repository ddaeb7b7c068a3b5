//! fork(2) in a microprocess: the child is a plain kernel thread with the thread-local storage of
//! its caller.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use kumihimo::runtime::{Runtime, metrics};
use kumihimo::thread::{self, Builder};
use kumihimo_tests::process::alone;

/// Waits for a forked child and returns its exit code.
fn reap(child: libc::pid_t) -> c_int {
    let mut status = 0;
    // SAFETY: an out pointer.
    assert_eq!(thread::blocking(|| unsafe { libc::waitpid(child, &mut status, 0) }), child);
    assert!(libc::WIFEXITED(status), "status {status:#x}");
    libc::WEXITSTATUS(status)
}

#[test]
fn forked_child_is_a_plain_kernel_thread() {
    alone("fork::forked_child_is_a_plain_kernel_thread", || {
        for (vps, lean) in [(1, false), (3, false), (2, true)] {
            Runtime::builder().vps(vps).build().expect("a runtime").run(move || {
                let others: Vec<_> = (0..10).map(|_| thread::spawn(thread::park)).collect();
                let forks = |how: u64| {
                    move || -> libc::pid_t {
                        thread_local!(static MARK: Cell<u64> = const { Cell::new(0) });
                        MARK.set(how + 1);
                        // SAFETY: the child continues with one kernel thread and makes only calls
                        // that are allowed there.
                        let child = unsafe { libc::fork() };
                        if child != 0 {
                            return child;
                        }
                        // The child is a plain kernel thread: it can wait, sleep and use locks, but
                        // cannot spawn.
                        assert_eq!(MARK.get(), how + 1);
                        thread::yield_now();
                        thread::sleep(std::time::Duration::from_micros(10));
                        assert_eq!(*kumihimo::sync::Mutex::new(3).lock().expect("not poisoned"), 3);
                        assert!(metrics().is_none());
                        if !one_to_one_child() {
                            let refused = Builder::new().spawn(|| ()).expect_err("not in a child");
                            assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
                        }
                        match how {
                            // SAFETY: the child's one kernel thread.
                            0 => unsafe { libc::exit(7) },
                            // The closure returns, which ends the process.
                            1 => 0,
                            // SAFETY: ends at once.
                            _ => unsafe { libc::_exit(9) },
                        }
                    }
                };
                for (how, code) in [(0, 7), (1, 0), (2, 9)] {
                    // SAFETY: the closure keeps no thread-local state across a switch in the
                    // parent.
                    let builder = unsafe { Builder::new().lean(lean) };
                    let child =
                        builder.spawn(forks(how)).expect("it begins").join().expect("no panic");
                    assert_eq!(reap(child), code, "vps {vps} lean {lean} how {how}");
                }
                for handle in others {
                    handle.thread().unpark();
                    handle.join().expect("no panic");
                }
            });
        }
    });
}

/// Kernel threads start and end all the time, and hold locks of std while they do. A forked child
/// must not wait for such a lock.
#[test]
fn forked_child_exits_without_waiting() {
    alone("fork::forked_child_exits_without_waiting", || {
        Runtime::builder().vps(2).build().expect("a runtime").run(|| {
            let done = Arc::new(AtomicBool::new(false));
            let churn = || {
                let done = done.clone();
                std::thread::spawn(move || {
                    while !done.load(SeqCst) {
                        std::thread::spawn(|| ()).join().expect("no panic");
                    }
                })
            };
            let churns: Vec<_> = (0..4).map(|_| churn()).collect();
            for _ in 0..1000 {
                // SAFETY: the child ends at once.
                let child = thread::spawn(|| unsafe { libc::fork() }).join().expect("no panic");
                assert_eq!(reap(child), 0);
            }
            done.store(true, SeqCst);
            churns
                .into_iter()
                .for_each(|churn| thread::blocking(|| churn.join()).expect("no panic"));
        });
    });
}

/// As `one_to_one`, for a process without a runtime.
fn one_to_one_child() -> bool {
    kumihimo_config::get().lab.tls == Some(kumihimo_config::Tls::Kernel)
}
