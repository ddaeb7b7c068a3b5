//! Scopes beyond waiting: the first error cancels the other children, and a deadline ends all of
//! them.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use kumihimo::net::UnixStream;
use kumihimo::policy::Priority;
use kumihimo::runtime::Runtime;
use kumihimo::sync::{Barrier, Condvar, Mutex, mpsc};
use kumihimo::thread::{self, Builder, Cancelled, Scope};
use kumihimo_tests::process::alone;

const SOON: Duration = Duration::from_millis(20);
const NEVER: Duration = Duration::from_secs(3600);

/// Runs on one and on two VPs, in a child process.
fn everywhere(name: &str, body: impl Fn() + Send + Sync) {
    alone(name, || {
        for vps in [1, 2] {
            Runtime::builder().vps(vps).build().expect("a runtime").run(&body);
        }
    });
}

fn forever() {
    loop {
        thread::park();
    }
}

#[test]
fn first_error_cancels_the_others() {
    everywhere("first_error_cancels_the_others", || {
        let ended = AtomicUsize::new(0);
        struct Counts<'a>(&'a AtomicUsize);
        impl Drop for Counts<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let (first, cancelled) = thread::scope(|s| {
            let all: Vec<_> = (0..10)
                .map(|_| {
                    s.try_spawn(|| {
                        let _counts = Counts(&ended);
                        forever();
                        Ok::<(), &str>(())
                    })
                })
                .collect();
            let fails = s.try_spawn(|| Err::<(), _>("no luck"));
            let first = fails.join().expect("it returns").expect_err("an error");
            // Children spawned later are cancelled as well.
            let late = s.spawn(forever);
            let cancelled = all
                .into_iter()
                .filter_map(|one| one.join().err())
                .filter(|p| p.is::<Cancelled>())
                .count();
            assert!(late.join().expect_err("cancelled").is::<Cancelled>());
            (first, cancelled)
        });
        assert_eq!((first, cancelled), ("no luck", 10));
        assert_eq!(ended.load(SeqCst), 10);
    });
}

#[test]
fn panic_in_a_scope_cancels_the_others() {
    everywhere("panic_in_a_scope_cancels_the_others", || {
        let scope = || {
            thread::scope(|s| {
                s.spawn(forever);
                s.try_spawn(|| -> Result<(), ()> { panic!("as asked") });
            });
        };
        let payload =
            std::panic::catch_unwind(scope).expect_err("a child that nobody joined panicked");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"a scoped thread panicked"));
    });
}

/// A microprocess that is cancelled while its children run cancels them as well, and unwinds only
/// after they have ended.
#[test]
fn cancelled_scope_owner_cancels_its_children() {
    everywhere("cancelled_scope_owner_cancels_its_children", || {
        let (sender, receiver) = mpsc::channel::<()>();
        let owner = thread::spawn(move || {
            let alive = AtomicUsize::new(0);
            thread::scope(|s| {
                for _ in 0..10 {
                    let (alive, sender) = (&alive, sender.clone());
                    s.spawn(move || {
                        let _sender = sender;
                        alive.fetch_add(1, SeqCst);
                        forever();
                    });
                }
                drop(sender);
            });
        });
        thread::yield_now();
        owner.cancel();
        assert!(owner.join().expect_err("cancelled").is::<Cancelled>());
        assert!(
            receiver.try_recv().is_err_and(|e| e == mpsc::TryRecvError::Disconnected),
            "the children have ended"
        );
    });
}

/// One child for each kind of wait. None of the waits ends on its own.
fn waits<'scope>(s: &'scope Scope<'scope, '_>, ended: &'scope AtomicUsize) -> usize {
    struct Ends<'a>(&'a AtomicUsize);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    type Wait = Box<dyn FnOnce() + Send>;
    let (sender, receiver) = mpsc::channel::<()>();
    let (near, far) = UnixStream::pair().expect("a pair");
    let kinds: Vec<Wait> = vec![
        Box::new(forever),
        Box::new(|| thread::sleep(NEVER)),
        Box::new(move || drop((sender.clone(), receiver.recv()))),
        Box::new(|| {
            Barrier::new(2).wait();
        }),
        Box::new(|| {
            let lock = Mutex::new(());
            drop(Condvar::new().wait(lock.lock().expect("not poisoned")));
        }),
        Box::new(move || drop((std::io::Read::read(&mut &near, &mut [0]), far))),
        Box::new(|| drop(thread::spawn(forever).join())),
        Box::new(|| {
            thread::scope(|inner| {
                inner.spawn(forever);
            });
        }),
        Box::new(|| {
            // A longer deadline of an inner scope has no effect.
            thread::scope_until(Instant::now() + NEVER, |inner| {
                inner.spawn(forever);
                forever();
            });
        }),
    ];
    let n = kinds.len();
    for wait in kinds {
        s.spawn(move || {
            let _ends = Ends(ended);
            wait();
        });
    }
    n
}

#[test]
fn deadline_ends_every_wait_of_the_children() {
    everywhere("deadline_ends_every_wait_of_the_children", || {
        let ended = AtomicUsize::new(0);
        let began = Instant::now();
        let n = thread::scope_until(began + SOON, |s| waits(s, &ended));
        assert!(began.elapsed() >= SOON);
        assert_eq!(ended.load(SeqCst), n);
    });
}

/// The scope's owner waits inside the scope for a child, a message or another scope, and continues
/// when the children are cancelled.
#[test]
fn deadline_ends_the_owners_wait() {
    everywhere("deadline_ends_the_owners_wait", || {
        thread::scope_until(Instant::now() + SOON, |s| {
            assert!(s.spawn(forever).join().expect_err("cancelled").is::<Cancelled>());
            let again = s.spawn(|| ()).join();
            assert!(again.is_ok(), "a thread that need not wait");
        });
        let (sender, receiver) = mpsc::channel::<()>();
        thread::scope_until(Instant::now() + SOON, |s| {
            s.spawn(move || {
                let _sender = sender;
                forever();
            });
            assert!(receiver.recv().is_err(), "the sender is gone");
        });
        thread::scope_until(Instant::now() + SOON, |_| {
            thread::scope(|inner| {
                inner.spawn(forever);
            });
        });
        assert!(!thread::cancel_requested(), "the owner itself is not cancelled");
    });
}

/// The owner may be a foreign kernel thread.
#[test]
fn kernel_thread_passes_its_deadline_to_children() {
    everywhere("kernel_thread_passes_its_deadline_to_children", || {
        let owner = std::thread::spawn(|| {
            thread::scope_until(Instant::now() + SOON, |s| {
                assert!(s.spawn(forever).join().expect_err("cancelled").is::<Cancelled>());
                s.spawn(|| thread::deadline().is_some()).join().expect("no panic")
            })
        });
        assert!(thread::blocking(|| owner.join()).expect("no panic"));
    });
}

/// Cancellation is masked by `without_cancellation` and by locks, whose waits continue without
/// spinning.
#[test]
fn child_can_mask_cancellation() {
    everywhere("child_can_mask_cancellation", || {
        let lock = Mutex::new(0);
        let (sender, receiver) = mpsc::channel();
        let held = lock.lock().expect("not poisoned");
        let deadline = Instant::now() + SOON;
        thread::scope(|outer| {
            outer.spawn(|| {
                thread::scope_until(deadline, |s| {
                    s.spawn(|| *lock.lock().expect("not poisoned") += 1);
                    s.spawn(move || {
                        thread::without_cancellation(|| receiver.recv().expect("a message"))
                    });
                });
            });
            thread::sleep_until(deadline + SOON);
            drop(held);
            sender.send(()).expect("it waits");
        });
        assert_eq!(lock.into_inner().expect("not poisoned"), 1);
    });
}

/// A cancelled microprocess that masks cancellation passes a switch point inside `yield_now`, and
/// may continue on another virtual processor.
#[test]
fn yields_under_masked_cancellation() {
    alone("yields_under_masked_cancellation", || {
        Runtime::builder().vps(4).build().expect("a runtime").run(|| {
            let all: Vec<_> = (0..60u8)
                .map(|n| {
                    let priority = Priority::new(n).expect("below 64");
                    Builder::new().priority(priority).spawn(move || {
                        thread_local!(static MINE: std::cell::Cell<u8> = const { std::cell::Cell::new(255) });
                        MINE.set(n);
                        thread::without_cancellation(|| {
                            for round in 0..3000u64 {
                                thread::yield_now();
                                assert_eq!(MINE.get(), n);
                                if round % 8 == u64::from(n) % 8 {
                                    thread::sleep(Duration::from_micros(round % 50));
                                }
                            }
                        });
                        n
                    })
                })
                .map(|spawned| spawned.expect("it begins"))
                .collect();
            all.iter().for_each(thread::JoinHandle::cancel);
            for (n, one) in all.into_iter().enumerate() {
                assert_eq!(usize::from(one.join().expect("it was not at a point when it was done")), n);
            }
        });
    });
}
