use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize;
use loom::thread::{JoinHandle, spawn};

use super::*;
use crate::microprocess::protocol::state::{Park, Resume, State, Suspend, Wake};

struct One {
    state: State,
    parker: StickyParker,
    /// Number of wakers that have published their store.
    done: AtomicUsize,
    /// Number of times that it was queued: must stay 0, since it keeps its kernel thread.
    queued: AtomicUsize,
}

fn begun() -> (Arc<One>, u64) {
    let (done, queued) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let one = One { state: State::new(8), parker: StickyParker::new(), done, queued };
    one.state.begin();
    let generation = one.state.generation();
    (Arc::new(one), generation)
}

/// Wakes as [`crate::microprocess::record::Ref::wake`] does.
fn waker(one: &Arc<One>, generation: u64) -> JoinHandle<()> {
    let one = one.clone();
    spawn(move || {
        one.done.fetch_add(1, Ordering::Relaxed);
        if one.state.wake(generation) == Wake::Queue && !one.parker.wake() {
            one.queued.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// Parks as `sticky::park` does.
fn park(one: &One, generation: u64, is_over: bool) {
    one.parker.prepare();
    if one.state.commit_park() == Park::Permit {
        return one.parker.reset();
    }
    let deadline = is_over.then(Instant::now);
    if one.parker.sleep(deadline) {
        return;
    }
    if one.state.wake(generation) == Wake::Queue {
        one.parker.reset()
    } else {
        assert!(one.parker.sleep(None))
    }
}

fn model(f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(f);
}

/// The microprocess waits until both wakers have woken it; neither queues it.
#[test]
fn two_wakers_wake_without_queueing() {
    model(|| {
        let (one, generation) = begun();
        let wakers = [waker(&one, generation), waker(&one, generation)];
        while one.done.load(Ordering::Relaxed) != 2 {
            park(&one, generation, false);
        }
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        assert_eq!(one.queued.load(Ordering::Relaxed), 0);
    });
}

/// A wake-up races with the deadline: the microprocess continues once, and is not queued.
#[test]
fn wake_racing_deadline_is_consumed() {
    model(|| {
        let (one, generation) = begun();
        let waker = waker(&one, generation);
        park(&one, generation, true);
        waker.join().unwrap();
        assert_eq!(one.queued.load(Ordering::Relaxed), 0);
        // A leftover permit ends the next wait.
        assert!(!one.parker.wake());
    });
}

/// A microprocess that is suspended while it waits continues only after both the wake-up and the
/// resumption.
#[test]
fn suspended_waiter_continues_after_wake_and_resume() {
    model(|| {
        let (one, generation) = begun();
        let waker = waker(&one, generation);
        let resumer = {
            let one = one.clone();
            spawn(move || {
                let asked = one.state.request_suspend(generation);
                assert!(matches!(asked, Suspend::Asked | Suspend::Waits));
                if one.state.resume(generation) == Resume::Queue && !one.parker.wake() {
                    one.queued.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        while one.done.load(Ordering::Relaxed) == 0 {
            park(&one, generation, false);
        }
        waker.join().unwrap();
        resumer.join().unwrap();
        assert_eq!(one.queued.load(Ordering::Relaxed), 0);
    });
}
