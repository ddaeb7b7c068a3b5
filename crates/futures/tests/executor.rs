//! The executor, and what the end of a runtime leaves. One test program, whose tests take turns: a
//! process has one runtime at a time.

use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use hyper::rt::Executor as _;
use kumihimo::future::block_on;
use kumihimo::futures::{Executor, Sleep, Timer, sleep};
use kumihimo::runtime::{Runtime, metrics};
use kumihimo::thread::{self, Cancelled, Priority};

const MS: Duration = Duration::from_millis(1);

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts its drops.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn tasks_block_each_for_itself() {
    let _turn = turn();
    Runtime::builder().vps(1).build().unwrap().run(|| {
        let executor = Executor::new().stack_size(64 << 10).priority(Priority::DEFAULT);
        let (send, receive) = kumihimo::sync::mpsc::channel::<u32>();
        let waiting = executor.spawn(async move { receive.iter().sum::<u32>() }).unwrap();
        for n in 0..10 {
            let send = send.clone();
            executor.execute(async move {
                sleep(MS).await;
                send.send(n).unwrap();
            });
        }
        drop(send);
        assert_eq!(waiting.join().unwrap(), 45);
    });
}

#[test]
fn panic_and_cancellation_end_one_task() {
    let _turn = turn();
    Runtime::builder().vps(1).build().unwrap().run(|| {
        let executor = Executor::new();
        let dropped = Arc::new(AtomicUsize::new(0));
        let (first, second) = (Dropped(dropped.clone()), Dropped(dropped.clone()));
        let panics = executor.spawn(async move {
            let _first = first;
            sleep(MS).await;
            std::panic::resume_unwind(Box::new("task"));
        });
        let never = executor
            .spawn(async move {
                let _second = second;
                pending::<()>().await;
            })
            .unwrap();
        thread::yield_now();
        never.cancel();
        assert!(panics.unwrap().join().unwrap_err().is::<&str>());
        assert!(never.join().unwrap_err().is::<Cancelled>());
        assert_eq!(dropped.load(SeqCst), 2);
    });
}

#[test]
fn stack_that_is_too_large_drops_the_future() {
    let _turn = turn();
    Runtime::builder().vps(1).build().unwrap().run(|| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let future = Dropped(dropped.clone());
        let executor = Executor::new().stack_size(usize::MAX);
        let error = executor.spawn(async move { drop(future) }).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(dropped.load(SeqCst), 1);
    });
}

/// What a task starts while its runtime ends is dropped: no hang, no panic.
#[test]
fn ending_runtime_drops_new_tasks() {
    let _turn = turn();
    let dropped = Arc::new(AtomicUsize::new(0));
    let (send, receive) = mpsc::channel();
    let (begun, begins) = mpsc::channel();
    let count = dropped.clone();
    Runtime::builder().vps(1).build().unwrap().run(move || {
        thread::spawn(move || {
            struct AtTheEnd(Arc<AtomicUsize>, mpsc::Sender<bool>);
            impl Drop for AtTheEnd {
                fn drop(&mut self) {
                    let future = Dropped(self.0.clone());
                    Executor::new().execute(async move { drop(future) });
                    let future = Dropped(self.0.clone());
                    let refused = Executor::new().spawn(async move { drop(future) }).is_err();
                    self.1.send(refused).unwrap();
                }
            }
            let _at_the_end = AtTheEnd(count, send);
            begun.send(()).unwrap();
            block_on(sleep(Duration::from_secs(3600)));
        });
        begins.recv().unwrap();
    });
    assert!(receive.recv().unwrap(), "a runtime that ends refuses to spawn");
    assert_eq!(dropped.load(SeqCst), 2);
}

/// Sleeps on a kernel thread end although the runtime that served them is gone.
#[test]
fn sleeps_outlive_the_runtime() {
    let _turn = turn();
    let (begun, begins) = mpsc::channel();
    let sleeper = {
        Runtime::builder().vps(1).build().unwrap().run(move || {
            let sleeper = std::thread::spawn(move || {
                let deadline = Instant::now() + 100 * MS;
                begun.send(()).unwrap();
                block_on(sleep(100 * MS));
                assert!(Instant::now() >= deadline);
            });
            begins.recv().unwrap();
            // The service is a microprocess of this runtime.
            block_on(sleep(2 * MS));
            sleeper
        })
    };
    sleeper.join().unwrap();
    // And the next runtime has a service of its own.
    Runtime::builder().vps(1).build().unwrap().run(|| block_on(sleep(MS)));
}

#[test]
fn service_ends_when_nothing_needs_it() {
    let _turn = turn();
    Runtime::builder().vps(1).build().unwrap().run(|| {
        let living = || metrics().unwrap().living;
        let before = living();
        block_on(sleep(MS));
        while living() != before {
            thread::sleep(10 * MS);
        }
        block_on(sleep(MS));
    });
}

#[test]
fn hypers_timer_resets_its_sleeps() {
    use hyper::rt::Timer as _;
    let mut sleep = Timer.sleep(Duration::MAX);
    let at = Timer.now() + MS;
    Timer.reset(&mut sleep, at);
    assert_eq!(sleep.as_mut().downcast_mut_pin::<Sleep>().unwrap().deadline(), at);
    block_on(sleep);
    assert!(Instant::now() >= at);
    block_on(Timer.sleep_until(at));
}
