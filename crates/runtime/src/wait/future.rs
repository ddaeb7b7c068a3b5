//! Futures: `block_on` polls a future in the calling microprocess, and its waker unparks that
//! microprocess.
//!
//! The waker of a microprocess is a number (its mark), not an object. Creating, cloning and
//! dropping one costs nothing, and a waker that outlives the microprocess wakes nothing. The waker
//! of a foreign kernel thread refers to that thread's parker.
//!
//! A waker refers to the microprocess, not to one call of `block_on` (`wake_flag.rs`). A call
//! nested in another one's `poll` may therefore consume a wake-up of the outer call. When the
//! nested call ends, it sets the wake flag again, and the outer call may poll once more than
//! necessary. For the same reason, using a waker after the end of its call causes at most one
//! superfluous poll.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use crate::idle::future_wakers::WakerKind;
use crate::microprocess::foreign_thread::{ForeignThread, foreign};
use crate::microprocess::protocol::wake_flag::WakeFlag;
use crate::microprocess::wait_reason::Wait;
use crate::microprocess::waiter::{Waiter, Who};
use crate::process::clock;
use crate::wait::{cancel, park, sleep};

/// Runs `future` on the caller until it is ready, and returns its output.
///
/// Polls the future in the calling microprocess, with that microprocess's thread-local storage.
/// Between polls the microprocess is parked until the future's waker is used, by any thread. Does
/// not touch the token of [`thread::park`](crate::thread::park). Allocates nothing. A future that
/// wakes itself lets other microprocesses run before it is polled again. Calls nest: a call inside
/// another one's `poll` stops the outer one until it ends.
///
/// Blocks the microprocess; on a foreign kernel thread and inside
/// [`thread::blocking`](crate::thread::blocking), the kernel thread. A cancellation point before
/// each poll: the future is dropped while the caller unwinds. A scope's deadline cancels the
/// scope's children, and nothing else, as in every wait except those for sockets. For a time limit,
/// see [`block_on_until`].
///
/// # Panics
/// If `poll` panics. The waker may still be used afterwards.
///
/// # Examples
///
/// ```
/// use kumihimo::{future, thread};
///
/// async fn area(width: u32, height: u32) -> u32 {
///     width * height
/// }
///
/// let both = thread::spawn(|| future::block_on(async { area(2, 3).await + area(4, 5).await }));
/// assert_eq!(both.join().unwrap(), 26);
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    match drive(future.into_future(), None) {
        Some(output) => output,
        None => unreachable!("no deadline can have passed"),
    }
}

/// As [`block_on`], for at most `time`. Returns `None` when the time is over. Blocks the
/// microprocess, or the kernel thread as described there.
///
/// # Panics
/// As [`block_on`].
///
/// # Examples
///
/// ```
/// use kumihimo::future;
/// use std::future::{pending, ready};
/// use std::time::Duration;
///
/// let limit = Duration::from_millis(2);
/// assert_eq!(future::block_on_timeout(ready(7), limit), Some(7));
/// assert_eq!(future::block_on_timeout(pending::<u32>(), limit), None);
/// ```
pub fn block_on_timeout<F: IntoFuture>(future: F, time: Duration) -> Option<F::Output> {
    drive(future.into_future(), Some(clock::after(time)))
}

/// As [`block_on`], until `deadline` at the latest. At the deadline it drops the future and returns
/// `None`.
///
/// Polls the future at least once. To keep the future, pin it and pass a reference:
/// `block_on_until(future.as_mut(), deadline)`. Blocks the microprocess, or the kernel thread as
/// described for [`block_on`].
///
/// # Panics
/// As [`block_on`].
///
/// # Examples
///
/// ```
/// use kumihimo::future;
/// use std::future::poll_fn;
/// use std::pin::pin;
/// use std::task::Poll;
/// use std::time::{Duration, Instant};
///
/// // Ready when it is polled for the second time.
/// let mut polls = 0..2;
/// let mut work = pin!(poll_fn(|_| match polls.next() {
///     Some(0) => Poll::Pending,
///     _ => Poll::Ready("done"),
/// }));
/// let soon = || Instant::now() + Duration::from_millis(2);
/// assert_eq!(future::block_on_until(work.as_mut(), soon()), None);
/// assert_eq!(future::block_on_until(work.as_mut(), soon()), Some("done"));
/// ```
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
        // A future that wakes itself, or polls with deadlines in the past, would starve other
        // microprocesses.
        if waited { cancel::point() } else { sleep::yield_now() }
    }
}

/// The wake flag of the caller, while it drives a future.
struct Driving<'a>(&'a WakeFlag);

impl Driving<'_> {
    fn begin(me: &Waiter) -> Driving<'_> {
        let flag = wake_flag_of(me);
        // A stale wake-up is dropped, since the first poll follows anyway.
        let _ = flag.take();
        Driving(flag)
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        // A wake-up consumed here may have been meant for an outer `block_on`.
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
        // SAFETY: the functions of `MARK` accept any mark, from any thread, at any time.
        Who::Micro(_) => unsafe { Waker::from_raw(marked(Waiter::mark())) },
        Who::Foreign(thread) => Waker::from(thread.clone()),
    }
}

// A static, so that it has one address: see `kind_of`.
static MARK: RawWakerVTable =
    RawWakerVTable::new(|mark| marked(mark.addr() as u64), wake_marked, wake_marked, |_| ());

/// Returns how `waker` may be called.
pub fn kind_of(waker: &Waker) -> WakerKind {
    let is_block_on = std::ptr::eq(waker.vtable(), &raw const MARK)
        || !park::waits_as_microprocess() && waker.will_wake(&Waker::from(foreign()));
    if is_block_on { WakerKind::BlockOn } else { WakerKind::Foreign }
}

fn marked(mark: u64) -> RawWaker {
    RawWaker::new(std::ptr::without_provenance(mark as usize), &MARK)
}

fn wake_marked(mark: *const ()) {
    if let Some(who) = Waiter::of_mark(mark.addr() as u64) {
        wake_flag_of(&who).set();
        // Not a switch point: wakers are used while their callers hold locks.
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
