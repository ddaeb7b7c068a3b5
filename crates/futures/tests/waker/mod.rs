//! Wakers that are code of the program, as those of other executors.
#![allow(dead_code)] // Each test program uses a part of it.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A waker that counts its calls.
pub struct Counted(Arc<Inner>);

#[derive(Default)]
struct Inner {
    calls: AtomicUsize,
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Inner {
    fn wake(self: Arc<Inner>) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mut woken = self.woken.lock().unwrap();
        *woken = true;
        self.changed.notify_all();
    }
}

impl Counted {
    pub fn new() -> Counted {
        Counted(Arc::default())
    }

    pub fn poll<F: Future + ?Sized>(&self, future: &mut Pin<Box<F>>) -> Poll<F::Output> {
        let waker = Waker::from(self.0.clone());
        future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Blocks the kernel thread until the waker was called, and has been dropped.
    pub fn wait(&self) {
        let mut woken = self.0.woken.lock().unwrap();
        while !std::mem::take(&mut *woken) {
            woken = self.0.changed.wait(woken).unwrap();
        }
        drop(woken);
        while self.holders() > 1 {
            kumihimo::thread::yield_now();
        }
    }

    pub fn calls(&self) -> usize {
        self.0.calls.load(Ordering::SeqCst)
    }

    /// Number of references to the waker, with the one of this object.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

/// Passes wake-ups on to the waker of the task, as `FuturesUnordered` does.
struct Through(Waker);

impl Wake for Through {
    fn wake(self: Arc<Through>) {
        self.0.wake_by_ref();
    }
}

/// Polls `future` with a waker of its own.
pub async fn through<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        let waker = Waker::from(Arc::new(Through(cx.waker().clone())));
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

/// Lets others run now and then, so that waits and wake-ups mix.
pub fn in_turn() {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    if TURN.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
        std::thread::sleep(Duration::from_micros(100));
    }
}
