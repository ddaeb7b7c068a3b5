//! Futures, driven by the microprocess that waits for them: the waker is an unpark.
//!
//! The waker of a microprocess is a number and no object: its mark. To make, clone and drop one
//! costs nothing, and one that outlives the microprocess leads to nobody. That of a foreign kernel
//! thread is its parker.
//!
//! Wakers speak to the microprocess and not to one call (`wake_flag.rs`). So a call inside another
//! one's `poll` may take what was meant for the outer one: at its end it calls itself, and the
//! outer one polls once more than it has to. For the same reason a waker that is used after the end
//! causes one poll too many, at most.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use crate::microprocess::foreign_thread::ForeignThread;
use crate::microprocess::wait_reason::Wait;
use crate::microprocess::waiter::{Waiter, Who};
use crate::microprocess::wake_flag::WakeFlag;
use crate::process::clock;
use crate::wait::{cancel, park, sleep};

/// Runs `future` on the caller until it is ready.
///
/// It is polled here, in the calling microprocess, with its thread-local storage; between polls the
/// microprocess is parked until the future's waker is used, from wherever.
/// [`thread::park`](crate::thread::park)'s token is not touched. Allocates nothing. A future that
/// wakes itself lets others run before it is polled again. Calls nest: one inside another one's
/// `poll` stops the outer one until it ends.
///
/// Blocks the microprocess; on a kernel thread that is none, or inside
/// [`thread::blocking`](crate::thread::blocking), the kernel thread. A cancellation point, before
/// each poll: the future is dropped while the caller unwinds. A scope's deadline acts as in every
/// wait that is not of sockets: it cancels the scope's children, and nobody else; for a limit of
/// its own see [`block_on_until`].
///
/// # Panics
/// With the panic of `poll`; the waker may be used all the same.
///
/// ```
/// use kumihimo_runtime::{future, thread};
/// let answer = thread::spawn(|| future::block_on(async { 6 * 7 }));
/// assert_eq!(answer.join().unwrap(), 42);
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    match drive(future.into_future(), None) {
        Some(output) => output,
        None => unreachable!("no deadline can have passed"),
    }
}

/// As [`block_on`], at most for `time`.
///
/// # Panics
/// As [`block_on`].
pub fn block_on_timeout<F: IntoFuture>(future: F, time: Duration) -> Option<F::Output> {
    drive(future.into_future(), Some(clock::after(time)))
}

/// As [`block_on`], at most until `deadline`: then the future is dropped, and there is `None`.
///
/// It is polled once in any case. To keep it, pin it, and give a reference:
/// `block_on_until(future.as_mut(), deadline)`.
///
/// # Panics
/// As [`block_on`].
pub fn block_on_until<F: IntoFuture>(future: F, deadline: Instant) -> Option<F::Output> {
    drive(future.into_future(), Some(deadline))
}

fn drive<F: Future>(future: F, deadline: Option<Instant>) -> Option<F::Output> {
    cancel::point();
    let mut future = pin!(future);
    let me = park::current();
    let waker = waker(&me);
    let mut context = Context::from_waker(&waker);
    let driving = Driving::begin(&me);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let mut waited = false;
        while !driving.0.take() && !cancel::would_unwind() {
            if deadline.is_some_and(|d| Instant::now() >= d) {
                if !waited {
                    sleep::yield_now();
                }
                return None;
            }
            park::park(Wait::Future, deadline);
            waited = true;
        }
        // A future that wakes itself, or polls with deadlines in the past, would starve the others.
        if waited { cancel::point() } else { sleep::yield_now() }
    }
}

/// The driver's word, while it drives.
struct Driving<'a>(&'a WakeFlag);

impl Driving<'_> {
    fn begin(me: &Waiter) -> Driving<'_> {
        let flag = wake_flag_of(me);
        // Whatever was said before: the first poll is to come.
        let _ = flag.take();
        Driving(flag)
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        // It may have been the outer one's.
        self.0.set();
    }
}

fn wake_flag_of(who: &Waiter) -> &WakeFlag {
    match who.who() {
        Who::Micro(who) => &who.mp.wake_flag,
        Who::Foreign(thread) => &thread.wake_flag,
    }
}

pub(crate) fn waker(me: &Waiter) -> Waker {
    match me.who() {
        // SAFETY: the functions of `MARK` take any mark, from any thread, at any time.
        Who::Micro(_) => unsafe { Waker::from_raw(marked(Waiter::mark())) },
        Who::Foreign(thread) => Waker::from(thread.clone()),
    }
}

const MARK: RawWakerVTable =
    RawWakerVTable::new(|mark| marked(mark.addr() as u64), wake_marked, wake_marked, |_| ());

fn marked(mark: u64) -> RawWaker {
    RawWaker::new(std::ptr::without_provenance(mark as usize), const { &MARK })
}

fn wake_marked(mark: *const ()) {
    if let Some(who) = Waiter::of_mark(mark.addr() as u64) {
        wake_flag_of(&who).set();
        // No switch point: wakers are used under the locks of others.
        who.wake();
    }
}

impl Wake for ForeignThread {
    fn wake(self: Arc<ForeignThread>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<ForeignThread>) {
        self.wake_flag.set();
        ForeignThread::wake(self);
    }
}
