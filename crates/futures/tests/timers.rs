//! Futures that sleep, and the service that wakes them.

mod waker;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_lite::future::or;
use kumihimo::future::block_on;
use kumihimo::futures::{sleep, sleep_until};
use kumihimo::sync::Mutex;
use kumihimo::thread;
use waker::{Counted, through};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

fn on_both(f: impl Fn() + Send + Sync + 'static) {
    f();
    thread::spawn(f).join().unwrap();
}

#[test]
fn sleeps_end_after_their_deadlines_in_any_order() {
    on_both(|| {
        let sleepers: Vec<_> = (0..2000u32)
            .map(|n| {
                let sleep_one = move || {
                    let deadline =
                        Instant::now() + Duration::from_micros(u64::from(n * 7919 % 9000));
                    let sleep = sleep_until(deadline);
                    if n % 2 == 0 {
                        block_on(sleep)
                    } else {
                        block_on(through(sleep))
                    }
                    assert!(Instant::now() >= deadline);
                };
                thread::spawn(sleep_one)
            })
            .collect();
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    });
}

#[test]
fn times_at_the_ends_of_the_clock() {
    on_both(|| {
        block_on(sleep(Duration::ZERO));
        block_on(sleep_until(Instant::now() - MS));
        let huge = sleep(Duration::MAX);
        assert!(huge.deadline() > Instant::now() + 24 * 365 * HOUR);
        let never = async {
            huge.await;
            "huge"
        };
        let soon = async {
            sleep(MS).await;
            "soon"
        };
        assert_eq!(block_on(or(never, soon)), "soon");
    });
}

#[test]
fn reset_moves_the_deadline_of_a_waiting_future() {
    on_both(|| {
        // Sooner, later, and into the past, while the future waits: it is polled by its waker only.
        let resets: [fn() -> Instant; 3] =
            [|| Instant::now() + MS, || Instant::now() + 3 * MS, || Instant::now() - MS];
        for to in resets {
            for from in [HOUR, 2 * MS] {
                let mut sleep = Box::pin(sleep(from));
                let counted = Counted::new();
                if counted.poll(&mut sleep).is_ready() {
                    continue;
                }
                let deadline = to();
                sleep.reset(deadline);
                while counted.poll_after_wake(&mut sleep).is_pending() {}
                assert!(Instant::now() >= deadline);
                // Again, after its end.
                sleep.reset(Instant::now() + MS);
                block_on(sleep.as_mut());
            }
        }
    });
}

impl Counted {
    fn poll_after_wake(&self, sleep: &mut Pin<Box<kumihimo::futures::Sleep>>) -> Poll<()> {
        self.wait();
        self.poll(sleep)
    }
}

#[test]
fn dropped_sleeps_keep_no_waker() {
    on_both(|| {
        let counted = Counted::new();
        let mut sleeps: Vec<_> = (0..100).map(|n| Box::pin(sleep((n % 3 + 1) * HOUR))).collect();
        assert!(sleeps.iter_mut().all(|sleep| counted.poll(sleep).is_pending()));
        assert_eq!(counted.holders(), 101);
        drop(sleeps);
        assert_eq!((counted.holders(), counted.calls()), (1, 0));
    });
}

#[test]
fn finished_sleep_is_ready_again() {
    let mut sleep = Box::pin(sleep(MS));
    block_on(sleep.as_mut());
    assert!(Counted::new().poll(&mut sleep).is_ready());
}

/// A waker that runs code of the program: it waits for a lock, or panics.
struct Waiting {
    /// Calls of such wakers that have begun, and those that got the lock.
    begun: Arc<AtomicUsize>,
    lock: Arc<Mutex<usize>>,
    panics: bool,
    then: Waker,
}

impl Wake for Waiting {
    fn wake(self: Arc<Waiting>) {
        self.begun.fetch_add(1, SeqCst);
        *self.lock.lock().unwrap() += 1;
        self.then.wake_by_ref();
        if self.panics {
            std::panic::resume_unwind(Box::new("not to be reported"));
        }
    }
}

/// Sleeps with such a waker until one of the sleeps had to wait.
fn sleep_with(lock: &Arc<Mutex<usize>>, begun: &Arc<AtomicUsize>, panics: bool) {
    let mut waited = false;
    while !waited {
        let mut sleep = sleep(MS);
        block_on(poll_fn(|cx| {
            let (begun, lock, then) = (begun.clone(), lock.clone(), cx.waker().clone());
            let waker = Waker::from(Arc::new(Waiting { begun, lock, panics, then }));
            let poll = Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker));
            waited |= poll.is_pending();
            poll
        }));
    }
}

/// The VPs run on while a waker waits, and other wakers are called after one has panicked.
#[test]
fn wakers_may_wait_and_panic() {
    thread::spawn(|| {
        let (lock, begun) = (Arc::new(Mutex::new(0)), Arc::new(AtomicUsize::new(0)));
        let held = lock.lock().unwrap();
        let sleepers: Vec<_> = (0..20)
            .map(|n| {
                let (lock, begun) = (lock.clone(), begun.clone());
                thread::spawn(move || sleep_with(&lock, &begun, n % 2 == 0))
            })
            .collect();
        // The service waits for the lock; this microprocess and its VP go on.
        while begun.load(SeqCst) == 0 {
            thread::sleep(MS);
        }
        thread::sleep(2 * MS);
        assert_eq!((begun.load(SeqCst), *held), (1, 0));
        drop(held);
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        while *lock.lock().unwrap() != begun.load(SeqCst) {
            thread::yield_now();
        }
    })
    .join()
    .unwrap();
}
