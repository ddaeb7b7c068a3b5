//! Microprocesses, end to end: spawn, join, yield, park, panic, scope, blocking, cancel.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kumihimo_runtime::any_ready::wait_any;
use kumihimo_runtime::park::{self, Wait};
use kumihimo_runtime::readiness::{Interest, Source};
use kumihimo_runtime::runtime::Events;
use kumihimo_runtime::thread::{self, Builder};
use kumihimo_runtime::{NoEvents, cancel, runtime};

fn on_runtime(f: impl FnOnce() + Send) {
    on_runtime_of(runtime::Runtime::builder().vps(2), f);
}

fn on_runtime_of(builder: runtime::Builder, f: impl FnOnce() + Send) {
    // A process can have only one runtime, so the tests of this file take turns.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    builder.build().unwrap().run(f);
}

#[test]
fn join_returns_the_value_of_the_closure() {
    on_runtime(|| {
        assert_eq!(thread::spawn(|| 6 * 7).join().unwrap(), 42);
        let text = String::from("moved in");
        assert_eq!(thread::spawn(move || text + " and out").join().unwrap(), "moved in and out");
        let big = [7u8; 5000];
        assert_eq!(
            thread::spawn(move || big.iter().map(|b| u32::from(*b)).sum::<u32>()).join().unwrap(),
            35_000
        );
    });
}

#[test]
fn ten_thousand_microprocesses_run_and_join() {
    on_runtime(|| {
        let handles: Vec<_> = (0..10_000u64).map(|i| thread::spawn(move || i)).collect();
        assert_eq!(handles.into_iter().map(|h| h.join().unwrap()).sum::<u64>(), 49_995_000);
    });
}

#[test]
fn yielding_microprocesses_interleave() {
    on_runtime(|| {
        let count = AtomicUsize::new(0);
        thread::scope(|s| {
            for _ in 0..10 {
                s.spawn(|| {
                    for _ in 0..1000 {
                        count.fetch_add(1, Ordering::Relaxed);
                        thread::yield_now();
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 10_000);
    });
}

#[test]
fn join_returns_the_panic_payload() {
    on_runtime(|| {
        let e =
            thread::spawn(|| panic!("as {}", std::hint::black_box("asked"))).join().unwrap_err();
        assert_eq!(e.downcast_ref::<String>().unwrap(), "as asked");
    });
}

#[test]
fn unpark_ends_park() {
    on_runtime(|| {
        let h = thread::spawn(|| {
            for _ in 0..100 {
                thread::park();
            }
        });
        while !h.is_finished() {
            h.thread().unpark();
            thread::yield_now();
        }
        h.join().unwrap();
    });
}

#[test]
fn sleeping_microprocesses_wake_up() {
    on_runtime(|| {
        let handles: Vec<_> = (0..1000u64)
            .map(|i| thread::spawn(move || thread::sleep(Duration::from_micros(i * 17 % 5000))))
            .collect();
        for h in handles {
            h.join().unwrap();
        }
    });
}

#[test]
fn blocking_call_leaves_other_microprocesses_running() {
    on_runtime(|| {
        let (r, w) = std::io::pipe().unwrap();
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let mut r = r.try_clone().unwrap();
                thread::spawn(move || {
                    thread::blocking(|| {
                        use std::io::Read;
                        let mut b = [0];
                        r.read_exact(&mut b).unwrap();
                        b[0]
                    })
                })
            })
            .collect();
        // Four blocked readers that kept their VPs would stop everything on two VPs.
        for _ in 0..100 {
            thread::spawn(thread::yield_now).join().unwrap();
        }
        let mut w = w;
        std::io::Write::write_all(&mut w, &[1, 2, 3, 4]).unwrap();
        assert_eq!(readers.into_iter().map(|h| h.join().unwrap()).map(u32::from).sum::<u32>(), 10);
    });
}

/// The calls mask the VP's slot for a short time, again and again, so that claims of the VP are
/// refused.
#[test]
fn blocking_call_that_enters_the_runtime_gives_its_vp_away() {
    on_runtime_of(runtime::Runtime::builder().vps(1).events(Events::Off), || {
        for _ in 0..1000 {
            let is_over = Arc::new(AtomicBool::new(false));
            let caller = is_over.clone();
            let caller = thread::spawn(move || {
                thread::blocking(|| {
                    while !caller.load(Ordering::Relaxed) {
                        drop(NoEvents::new());
                    }
                });
            });
            thread::spawn(move || is_over.store(true, Ordering::Relaxed)).join().unwrap();
            caller.join().unwrap();
        }
    });
}

#[test]
fn many_short_blocking_calls_return_their_values() {
    on_runtime(|| {
        let handles: Vec<_> =
            (0..2000u32).map(|i| thread::spawn(move || thread::blocking(|| i))).collect();
        for (i, h) in handles.into_iter().enumerate() {
            assert_eq!(h.join().unwrap(), i as u32);
        }
    });
}

#[test]
fn cancelled_microprocess_unwinds() {
    on_runtime(|| {
        let h = thread::spawn(|| thread::sleep(Duration::from_secs(1000)));
        thread::yield_now();
        h.cancel();
        assert!(h.join().unwrap_err().is::<cancel::Cancelled>());
    });
}

/// The permit of a cancellation may be taken by a wait that is no cancellation point, or together
/// with the event that another wait was for.
#[test]
fn waits_see_a_cancellation_whose_permit_is_taken() {
    fn cancel_without_permit() {
        cancel::masked(|| {
            thread::current().cancel();
            park::park(Wait::Park, None);
        });
    }
    fn is_cancelled<T>(waits: thread::JoinHandle<T>) -> bool {
        // A VP without work would wake long waits, to trim their stacks.
        (0..100_000).take_while(|_| !waits.is_finished()).for_each(|_| thread::yield_now());
        waits.is_finished() && waits.join().is_err_and(|payload| payload.is::<cancel::Cancelled>())
    }
    on_runtime_of(runtime::Runtime::builder().vps(1), || {
        let (silent, _peer) = UnixStream::pair().unwrap();
        let fd = silent.as_raw_fd();
        let one = thread::spawn(move || {
            let source = Source::new(fd);
            cancel_without_permit();
            source.wait(Interest::Read, source.seen(Interest::Read), None)
        });
        assert!(is_cancelled(one), "in a wait for one descriptor");
        let any = thread::spawn(move || {
            let source = Source::new(fd);
            cancel_without_permit();
            wait_any(&[(&source, Interest::Read, source.seen(Interest::Read))], None)
        });
        assert!(is_cancelled(any), "in a wait for any of several descriptors");
    });
}

#[test]
fn thread_locals_are_private_and_destroyed() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Noted(usize);
    impl Drop for Noted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local!(static MINE: std::cell::RefCell<Noted> = const { std::cell::RefCell::new(Noted(0)) });
    on_runtime(|| {
        let handles: Vec<_> = (0..100)
            .map(|i| {
                thread::spawn(move || {
                    MINE.with_borrow_mut(|m| m.0 = i);
                    for _ in 0..20 {
                        thread::yield_now();
                        MINE.with_borrow(|m| assert_eq!(m.0, i));
                    }
                })
            })
            .collect();
        for h in handles {
            h.join().unwrap();
        }
        assert_eq!(DROPPED.load(Ordering::Relaxed), 100);
    });
}

#[test]
fn lean_microprocesses_return_their_values() {
    on_runtime(|| {
        let handles: Vec<_> = (0..1000u32)
            .map(|i| {
                // SAFETY: the closure uses no thread-local state.
                unsafe { Builder::new().lean(true) }
                    .spawn(move || {
                        thread::yield_now();
                        i
                    })
                    .unwrap()
            })
            .collect();
        for (i, h) in handles.into_iter().enumerate() {
            assert_eq!(h.join().unwrap(), i as u32);
        }
    });
}

#[test]
fn child_first_trees_join() {
    fn tree(n: u32) -> u64 {
        if n == 0 {
            return 1;
        }
        let handles: Vec<_> = (0..4)
            .map(|_| Builder::new().child_first(true).spawn(move || tree(n - 1)).unwrap())
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).sum()
    }
    on_runtime(|| assert_eq!(tree(6), 4096));
}

#[test]
fn kernel_threads_and_microprocesses_join_each_other() {
    on_runtime(|| {
        let h = thread::spawn(|| 5);
        let from_outside = std::thread::spawn(move || {
            thread::spawn(move || h.join().unwrap() + 1).join().unwrap()
        });
        assert_eq!(thread::blocking(|| from_outside.join().unwrap()), 6);
    });
}
