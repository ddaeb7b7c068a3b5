//! The place where a sticky microprocess waits for a wake-up by the runtime, on its kernel thread.
//!
//! ```text
//!   its microprocess            a waker (or a resuming thread)
//!   lie_down():  UP -> LIES
//!   State: LIVE -> PARKED       State: PARKED -> LIVE
//!   sleep() while LIES          call():  LIES -> CALLED, and the kernel thread is woken
//!   CALLED -> UP                (UP: it is queued, as any other)
//! ```
//! PARKED is reached after LIES was written, and left before LIES is read. Both sides access it by
//! read-modify-write operations on one word ([`crate::state`]), so the waker that takes it out of
//! PARKED sees where it lies.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

const UP: u32 = 0;
const LIES: u32 = 1;
const CALLED: u32 = 2;

#[derive(Debug)]
pub(crate) struct Berth(AtomicU32);

impl Berth {
    pub(crate) fn new() -> Berth {
        Berth(AtomicU32::new(UP))
    }

    /// By its microprocess, about to park.
    pub(crate) fn lie_down(&self) {
        self.0.store(LIES, Ordering::Relaxed);
    }

    /// By its microprocess, which did not park, or is nobody else's to wake any more.
    pub(crate) fn get_up(&self) {
        self.0.store(UP, Ordering::Relaxed);
    }

    /// By anybody; out of date at once.
    pub(crate) fn is_used(&self) -> bool {
        self.0.load(Ordering::Relaxed) == LIES
    }

    /// Called by the waker that made it runnable. Returns true if it lay here and continues on its
    /// kernel thread, false if it has to be queued.
    #[inline(always)]
    pub(crate) fn call(&self) -> bool {
        self.0.load(Ordering::Relaxed) != UP && self.call_who_lies()
    }

    #[cold]
    fn call_who_lies(&self) -> bool {
        // Release: what the waker did. After this the microprocess may end: only the address is
        // used.
        self.0.store(CALLED, Ordering::Release);
        #[cfg(not(loom))]
        crate::futex::wake_one(&self.0);
        true
    }

    /// By its microprocess, parked: true once it was called; false when the time was over. Blocks
    /// the kernel thread.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> bool {
        loop {
            if self.0.load(Ordering::Acquire) == CALLED {
                self.get_up();
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            #[cfg(not(loom))]
            crate::futex::wait(&self.0, LIES, deadline);
            #[cfg(loom)]
            loom::thread::yield_now();
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::state::{Park, Resume, State, Suspend, Wake};
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread::{JoinHandle, spawn};

    struct One {
        state: State,
        berth: Berth,
        /// What the wakers do.
        done: AtomicUsize,
        /// Times that it was queued: never, since it keeps its kernel thread.
        queued: AtomicUsize,
    }

    fn begun() -> (Arc<One>, u64) {
        let (done, queued) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let one = One { state: State::new(8), berth: Berth::new(), done, queued };
        one.state.begin();
        let generation = one.state.generation();
        (Arc::new(one), generation)
    }

    /// As [`crate::record::Ref::wake`].
    fn waker(one: &Arc<One>, generation: u64) -> JoinHandle<()> {
        let one = one.clone();
        spawn(move || {
            one.done.fetch_add(1, Ordering::Relaxed);
            if one.state.wake(generation) == Wake::Queue && !one.berth.call() {
                one.queued.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// As `sticky::park`.
    fn park(one: &One, generation: u64, is_over: bool) {
        one.berth.lie_down();
        if one.state.commit_park() == Park::Permit {
            return one.berth.get_up();
        }
        let deadline = is_over.then(Instant::now);
        if one.berth.sleep(deadline) {
            return;
        }
        if one.state.wake(generation) == Wake::Queue {
            one.berth.get_up()
        } else {
            assert!(one.berth.sleep(None))
        }
    }

    fn model(f: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(f);
    }

    /// It waits until both have woken it; nobody queues it.
    #[test]
    fn two_wakers() {
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

    /// Its time is over while somebody wakes it: it goes on once, and is nobody's to queue.
    #[test]
    fn woken_when_its_time_is_over() {
        model(|| {
            let (one, generation) = begun();
            let waker = waker(&one, generation);
            park(&one, generation, true);
            waker.join().unwrap();
            assert_eq!(one.queued.load(Ordering::Relaxed), 0);
            // What is left over ends the next wait.
            assert!(!one.berth.call());
        });
    }

    /// Suspended while it waits it goes on only when it was both woken and resumed.
    #[test]
    fn suspended() {
        model(|| {
            let (one, generation) = begun();
            let waker = waker(&one, generation);
            let resumer = {
                let one = one.clone();
                spawn(move || {
                    let asked = one.state.suspend(generation);
                    assert!(matches!(asked, Suspend::Asked | Suspend::Waits));
                    if one.state.unsuspend(generation) == Resume::Queue && !one.berth.call() {
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
}
