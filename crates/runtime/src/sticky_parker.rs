//! The place where a sticky microprocess waits for a wake-up by the runtime, on its kernel thread.
//!
//! ```text
//!   its microprocess              a waker (or a resuming thread)
//!   prepare():  AWAKE -> ASLEEP
//!   State: LIVE -> PARKED         State: PARKED -> LIVE
//!   sleep() while ASLEEP          wake():  ASLEEP -> WOKEN, and the kernel thread is woken
//!   WOKEN -> AWAKE                (AWAKE: it is queued, as any other)
//! ```
//! PARKED is reached after ASLEEP was written, and left before ASLEEP is read. Both sides access it
//! by read-modify-write operations on one word ([`crate::state`]), so the waker that takes it out
//! of PARKED sees that it sleeps here.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const WOKEN: u32 = 2;

#[derive(Debug)]
pub(crate) struct StickyParker(AtomicU32);

impl StickyParker {
    pub(crate) fn new() -> StickyParker {
        StickyParker(AtomicU32::new(AWAKE))
    }

    /// By its microprocess, about to park.
    pub(crate) fn prepare(&self) {
        self.0.store(ASLEEP, Ordering::Relaxed);
    }

    /// By its microprocess, which did not park, or is nobody else's to wake any more.
    pub(crate) fn reset(&self) {
        self.0.store(AWAKE, Ordering::Relaxed);
    }

    /// By anybody; out of date at once.
    pub(crate) fn is_asleep(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ASLEEP
    }

    /// Called by the waker that made it runnable. Returns true if it slept here and continues on
    /// its kernel thread, false if it has to be queued.
    #[inline(always)]
    pub(crate) fn wake(&self) -> bool {
        self.0.load(Ordering::Relaxed) != AWAKE && self.wake_sleeper()
    }

    #[cold]
    fn wake_sleeper(&self) -> bool {
        // Release: what the waker did. After this the microprocess may end: only the address is
        // used.
        self.0.store(WOKEN, Ordering::Release);
        #[cfg(not(loom))]
        crate::futex::wake_one(&self.0);
        true
    }

    /// By its microprocess, parked: true once it was woken; false when the time was over. Blocks
    /// the kernel thread.
    pub(crate) fn sleep(&self, deadline: Option<Instant>) -> bool {
        loop {
            if self.0.load(Ordering::Acquire) == WOKEN {
                self.reset();
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            #[cfg(not(loom))]
            crate::futex::wait(&self.0, ASLEEP, deadline);
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
        parker: StickyParker,
        /// What the wakers do.
        done: AtomicUsize,
        /// Times that it was queued: never, since it keeps its kernel thread.
        queued: AtomicUsize,
    }

    fn begun() -> (Arc<One>, u64) {
        let (done, queued) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let one = One { state: State::new(8), parker: StickyParker::new(), done, queued };
        one.state.begin();
        let generation = one.state.generation();
        (Arc::new(one), generation)
    }

    /// As [`crate::record::Ref::wake`].
    fn waker(one: &Arc<One>, generation: u64) -> JoinHandle<()> {
        let one = one.clone();
        spawn(move || {
            one.done.fetch_add(1, Ordering::Relaxed);
            if one.state.wake(generation) == Wake::Queue && !one.parker.wake() {
                one.queued.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// As `sticky::park`.
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
            assert!(!one.parker.wake());
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
}
