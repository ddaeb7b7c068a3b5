//! Futures driven by microprocesses and kernel threads, and their wakers.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::{pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use kumihimo_runtime::future::{block_on, block_on_timeout, block_on_until};
use kumihimo_runtime::runtime::{Builder, Preemption, Runtime};
use kumihimo_runtime::{cancel, thread};

/// Runs `f` on a foreign kernel thread and in a microprocess.
fn on_both(vps: usize, f: impl Fn() + Send) {
    f();
    on_runtime(vps, f);
}

fn on_runtime(vps: usize, f: impl FnOnce() + Send) {
    on(Runtime::builder().vps(vps), f);
}

fn on(runtime: Builder, f: impl FnOnce() + Send) {
    // A process can have only one runtime, so the tests of this file take turns.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    runtime.build().unwrap().run(f);
}

/// Returns a future that is pending once and then ready; `give` gets the waker.
async fn once(mut give: impl FnMut(&Waker)) {
    let mut polled = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        give(cx.waker());
        Poll::Pending
    })
    .await;
}

#[test]
fn block_on_returns_output_at_once_and_after_many_awaits() {
    on_both(2, || {
        assert_eq!(block_on(ready(7)), 7);
        let text = String::from("borrowed");
        let sum = block_on(async {
            let mut sum = 0;
            for n in 0..100 {
                once(Waker::wake_by_ref).await;
                sum += n + ready(text.len()).await;
            }
            sum
        });
        assert_eq!(sum, 4950 + 800);
    });
}

#[test]
fn kernel_threads_and_microprocesses_wake_futures() {
    on_runtime(2, || {
        let drive = || {
            for _ in 0..200 {
                block_on(once(|waker| {
                    let waker = waker.clone();
                    std::thread::spawn(move || waker.wake());
                }));
                block_on(once(|waker| {
                    let waker = waker.clone();
                    thread::spawn(move || waker.wake());
                }));
            }
        };
        let others = [thread::spawn(drive), thread::spawn(drive)];
        let kernel = std::thread::spawn(drive);
        drive();
        others.into_iter().for_each(|t| t.join().unwrap());
        thread::blocking(|| kernel.join().unwrap());
    });
}

#[test]
fn wakers_and_park_tokens_are_independent() {
    on_both(1, || {
        thread::current().unpark();
        let mut polls = 0;
        // No waker is used. If the token were taken for a wake-up, there would be a second poll.
        let never = poll_fn(|_| {
            polls += 1;
            Poll::<()>::Pending
        });
        assert_eq!(block_on_timeout(never, Duration::from_millis(5)), None);
        assert_eq!(polls, 1);
        thread::park();
        // And a waker leaves no token.
        let mut late = None;
        block_on(once(|waker| {
            waker.wake_by_ref();
            late = Some(waker.clone());
        }));
        late.unwrap().wake();
        let until = Instant::now() + Duration::from_millis(5);
        thread::park_until(until);
        assert!(Instant::now() >= until, "park consumed a token that no thread left");
    });
}

#[test]
fn self_waking_future_lets_others_run() {
    on(Runtime::builder().vps(1).preemption(Preemption::Off), || {
        let ran = Arc::new(AtomicBool::new(false));
        let seen = ran.clone();
        let other = thread::spawn(move || seen.store(true, SeqCst));
        block_on(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if ran.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        }));
        other.join().unwrap();
    });
}

#[test]
fn nested_block_on_does_not_lose_outer_wakes() {
    on_both(2, || {
        block_on(once(|outer| {
            outer.wake_by_ref();
            block_on(once(|inner| {
                let inner = inner.clone();
                std::thread::spawn(move || inner.wake());
            }));
        }));
        // The same if the inner one panics.
        block_on(once(|outer| {
            outer.wake_by_ref();
            let inner =
                catch_unwind(|| block_on(async { panic!("inside {}", std::hint::black_box(1)) }));
            assert!(inner.is_err());
        }));
    });
}

#[test]
fn panics_propagate_from_block_on() {
    on_both(1, || {
        let dropped = Cell::new(false);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _owned = scopeguard(|| dropped.set(true));
            block_on(async {
                let _owned = &_owned;
                once(Waker::wake_by_ref).await;
                panic!("as {}", std::hint::black_box("asked"));
            })
        }));
        assert_eq!(caught.unwrap_err().downcast_ref::<String>().unwrap(), "as asked");
        assert!(dropped.get());
        assert_eq!(block_on(ready(1)), 1);
    });
}

fn scopeguard<F: FnMut()>(f: F) -> impl Drop {
    struct Guard<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Guard<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Guard(f)
}

/// Uses a waker after the end of its call, of its microprocess, and after the next life of that
/// microprocess's record has begun.
#[test]
fn late_wakers_wake_no_other_microprocess() {
    on_runtime(1, || {
        let mut wakers = Vec::new();
        for round in 0..50 {
            let kept = thread::spawn(|| {
                let mut kept = None;
                block_on(once(|waker| {
                    waker.wake_by_ref();
                    kept = Some(waker.clone());
                }));
                let kept = kept.unwrap();
                kept.wake_by_ref();
                // Has no effect on a later wait.
                let until = Instant::now() + Duration::from_micros(100);
                thread::sleep_until(until);
                assert!(Instant::now() >= until);
                kept
            });
            wakers.push(kept.join().unwrap());
            let all = wakers.clone();
            let next = thread::spawn(move || {
                let mut polls = 0;
                let late = poll_fn(|_| {
                    polls += 1;
                    all.iter().for_each(Waker::wake_by_ref);
                    Poll::<()>::Pending
                });
                assert_eq!(block_on_timeout(late, Duration::from_micros(100)), None);
                polls
            });
            // The wakers belong to former lives, so none of them wakes it.
            assert_eq!(next.join().unwrap(), 1, "round {round}");
        }
        std::thread::spawn(move || wakers.into_iter().for_each(Waker::wake)).join().unwrap();
    });
    // A waker of a kernel thread that has ended.
    let kept = std::thread::spawn(|| block_on(poll_fn(|cx| Poll::Ready(cx.waker().clone()))))
        .join()
        .unwrap();
    kept.wake_by_ref();
    kept.wake();
}

#[test]
fn cancellation_drops_the_future_unless_masked() {
    on_runtime(2, || {
        let dropped = Arc::new(AtomicBool::new(false));
        let (seen, (told, hear)) = (dropped.clone(), mpsc::channel());
        let waits = thread::spawn(move || {
            let _owned = scopeguard(|| seen.store(true, SeqCst));
            block_on(async move {
                let _owned = _owned;
                told.send(()).unwrap();
                pending::<()>().await;
            });
        });
        thread::blocking(|| hear.recv().unwrap());
        waits.cancel();
        assert!(waits.join().unwrap_err().is::<cancel::Cancelled>());
        assert!(dropped.load(SeqCst));
        // Masked: the future is driven to its end.
        let (told, hear) = mpsc::channel();
        let masked = thread::spawn(move || {
            let value = cancel::masked(|| {
                block_on(async {
                    once(|waker| told.send(waker.clone()).unwrap()).await;
                    9
                })
            });
            assert!(cancel::requested());
            value
        });
        let waker = thread::blocking(|| hear.recv().unwrap());
        masked.cancel();
        waker.wake();
        assert_eq!(masked.join().unwrap(), 9);
        // Cancelled before the first poll.
        let gone = thread::spawn(|| {
            cancel::masked(|| {
                while !cancel::requested() {
                    thread::yield_now();
                }
            });
            block_on(poll_fn(|_| -> Poll<()> { panic!("polled") }));
        });
        gone.cancel();
        assert!(gone.join().unwrap_err().is::<cancel::Cancelled>());
    });
}

#[test]
fn deadlines_drop_unfinished_futures() {
    on_both(1, || {
        let past = Instant::now() - Duration::from_millis(1);
        assert_eq!(block_on_until(ready(1), past), Some(1));
        assert_eq!(block_on_until(pending::<()>(), past), None);
        assert_eq!(block_on_timeout(ready(1), Duration::MAX), Some(1));
        // A future that is passed by reference can be driven again.
        let mut turns = 0;
        let mut both = pin!(poll_fn(|_| {
            turns += 1;
            if turns == 1 { Poll::Pending } else { Poll::Ready("at last") }
        }));
        assert_eq!(block_on_until(both.as_mut(), past), None);
        assert_eq!(block_on(both), "at last");
    });
    // A scope's deadline cancels its children.
    on_runtime(2, || {
        let deadline = Instant::now() + Duration::from_millis(5);
        let ended = thread::scope_until(deadline, |s| s.spawn(|| block_on(pending::<()>())).join());
        assert!(ended.unwrap_err().is::<cancel::Cancelled>());
    });
}

#[test]
fn block_on_inside_blocking_blocks_the_kernel_thread() {
    on_runtime(1, || {
        block_on(once(|outer| {
            outer.wake_by_ref();
            thread::blocking(|| {
                block_on(once(|inner| {
                    let inner = inner.clone();
                    thread::spawn(move || inner.wake());
                }));
            });
        }));
    });
}

struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: forwards to the system's allocator, and counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn block_on_allocates_nothing() {
    on_both(1, || {
        let drive = || {
            block_on(async {
                for _ in 0..100 {
                    once(|waker| {
                        let another = waker.clone();
                        waker.wake_by_ref();
                        drop(another);
                    })
                    .await;
                }
            });
        };
        // The first wait of a kernel thread allocates its parker.
        drive();
        let before = ALLOCATED.get();
        drive();
        assert_eq!(ALLOCATED.get() - before, 0);
    });
}

/// Microprocesses and kernel threads drive futures that wait for events, which wakers of both kinds
/// bring in random order. Some wakers are used again later.
#[test]
fn random_wakers_lose_no_event() {
    const DRIVERS: usize = 8;
    const EVENTS: usize = 2_000;
    #[derive(Default)]
    struct Place {
        events: AtomicUsize,
        waker: Mutex<Option<Waker>>,
    }
    let seed = std::env::var("KUMI_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_nanos() as u64));
    println!("random_wakers_lose_no_event: KUMI_SEED={seed}");
    on_runtime(2, || {
        let places: Arc<[Place]> = (0..DRIVERS).map(|_| Place::default()).collect();
        let drive = |n: usize| {
            let places = places.clone();
            move || {
                for wanted in 1..=EVENTS {
                    block_on(poll_fn(|cx| {
                        *places[n].waker.lock().unwrap() = Some(cx.waker().clone());
                        if places[n].events.load(SeqCst) >= wanted {
                            Poll::Ready(())
                        } else {
                            Poll::Pending
                        }
                    }));
                }
            }
        };
        let wake = |n: u64| {
            let places = places.clone();
            move || {
                let mut random = seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                let mut below = |bound: usize| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    (random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
                };
                let (mut left, mut late) = ([EVENTS / 4; DRIVERS], None::<Waker>);
                while left.iter().any(|n| *n > 0) {
                    let at = below(DRIVERS);
                    if left[at] > 0 {
                        left[at] -= 1;
                        places[at].events.fetch_add(1, SeqCst);
                        let waker = places[at].waker.lock().unwrap().take();
                        if let Some(waker) = waker {
                            if below(4) == 0 {
                                late = Some(waker.clone());
                            }
                            waker.wake();
                        }
                    }
                    match below(16) {
                        0 => late.iter().for_each(Waker::wake_by_ref),
                        1 | 2 => thread::yield_now(),
                        _ => {}
                    }
                }
            }
        };
        let kernel = (0..DRIVERS / 2).map(|n| std::thread::spawn(drive(n)));
        let mut kernel: Vec<_> =
            kernel.chain((0..2).map(|n| std::thread::spawn(wake(n)))).collect();
        let micro = (DRIVERS / 2..DRIVERS).map(|n| thread::spawn(drive(n)));
        let micro: Vec<_> = micro.chain((2..4).map(|n| thread::spawn(wake(n)))).collect();
        micro.into_iter().for_each(|t| t.join().unwrap());
        thread::blocking(|| kernel.drain(..).for_each(|t| t.join().unwrap()));
    });
}
