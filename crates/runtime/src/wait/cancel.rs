//! Cooperative cancellation.
//!
//! A cancelled microprocess unwinds at its next *cancellation point*. Cancellation points are
//! [`point`] and every operation that may wait for long, when it begins and when it ends: `park`,
//! `sleep`, `yield_now`, `join`, condition variables, barriers, messages and sockets, as well as
//! channels and semaphores where they have to wait. Locks are not: `Mutex`, `RwLock` and `Once`
//! wait until they succeed.
//!
//! The unwinding carries [`Cancelled`] and runs no panic hook; `join` returns the payload in its
//! `Err`. Cancellation is never reported as `ErrorKind::Interrupted`, because std's loops would
//! retry.
//!
//! Cancellation is deferred inside [`masked`], while the microprocess unwinds already (so in `Drop`
//! during a panic), and below a frame that cannot unwind: an `extern "C"` function that C calls
//! back, code without unwind tables, or another stack. In a program built with `panic = "abort"` it
//! never takes effect.

use std::time::Instant;

use crate::kernel_thread::gs_record::current_mp;
use crate::memory::frames;
use crate::microprocess::foreign_thread;
use crate::microprocess::record::Mp;
use crate::microprocess::waiter::{Waiter, Who};
use crate::upcall::regain::switch_point;

/// The payload with which a cancelled microprocess unwinds; `JoinHandle::join` returns it in its
/// `Err`.
///
/// # Examples
///
/// ```
/// use kumihimo::thread::{self, Cancelled};
///
/// let handle = thread::spawn(thread::park);
/// handle.cancel();
/// let payload = handle.join().unwrap_err();
/// assert_eq!(payload.downcast_ref(), Some(&Cancelled));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the microprocess was cancelled")
    }
}

impl std::error::Error for Cancelled {}

fn due(mp: &Mp) -> bool {
    mp.state.is_cancelled()
        && mp.cancel_masked.get() == 0
        && cfg!(panic = "unwind")
        && !std::thread::panicking()
        && frames::can_unwind()
}

/// Whether [`point`] would unwind now. For operations that have to restore an invariant before.
#[inline]
pub fn would_unwind() -> bool {
    current_mp().map_or_else(one_to_one_due, due)
}

/// Whether cancellation is due for the calling kernel thread, which runs no microprocess.
fn one_to_one_due() -> bool {
    foreign_thread::due()
        && cfg!(panic = "unwind")
        && !std::thread::panicking()
        && frames::can_unwind()
}

/// A cancellation point and a switch point.
///
/// # Panics
/// Unwinds with [`Cancelled`] if the calling microprocess was cancelled and cancellation is not
/// masked. Never unwinds on foreign kernel threads.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
///
/// let computation = thread::spawn(|| {
///     for step in 0u64.. {
///         std::hint::black_box(step);
///         thread::cancellation_point();
///     }
/// });
/// computation.cancel();
/// assert!(computation.join().unwrap_err().is::<thread::Cancelled>());
/// ```
#[inline]
pub fn point() {
    let mp = current_mp();
    if mp.map_or_else(one_to_one_due, due) {
        std::panic::resume_unwind(Box::new(Cancelled));
    }
    if mp.is_some() {
        switch_point();
    }
}

/// Whether cancellation of the calling microprocess was requested, masked or not.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
///
/// let handle = thread::spawn(|| {
///     thread::without_cancellation(|| {
///         while !thread::cancel_requested() {
///             thread::yield_now();
///         }
///     });
///     "ended in order"
/// });
/// handle.cancel();
/// assert_eq!(handle.join().unwrap(), "ended in order");
/// ```
pub fn requested() -> bool {
    current_mp().map_or_else(foreign_thread::is_cancelled, |mp| mp.state.is_cancelled())
}

/// Runs `f` with cancellation deferred. A request that arrives meanwhile takes effect at the next
/// cancellation point after `f`. Nests.
///
/// For code that must run to completion, and around calls out of `extern "C"` functions, through
/// which unwinding is not allowed.
///
/// # Examples
///
/// ```
/// use kumihimo::{sync::mpsc, thread};
/// use std::time::Duration;
///
/// let (sender, receiver) = mpsc::channel();
/// let handle = thread::spawn(move || {
///     thread::without_cancellation(|| {
///         thread::sleep(Duration::from_millis(1));
///         sender.send("complete").unwrap();
///     });
///     thread::park();
/// });
/// handle.cancel();
/// assert_eq!(receiver.recv(), Ok("complete"));
/// assert!(handle.join().is_err(), "cancelled in `park`");
/// ```
pub fn masked<R>(f: impl FnOnce() -> R) -> R {
    struct Unmask(Option<&'static Mp>);
    impl Drop for Unmask {
        fn drop(&mut self) {
            match self.0 {
                Some(mp) => mp.cancel_masked.set(mp.cancel_masked.get() - 1),
                None => foreign_thread::unmask(),
            }
        }
    }
    let mp = current_mp();
    match mp {
        Some(mp) => mp.cancel_masked.set(mp.cancel_masked.get() + 1),
        None => foreign_thread::mask(),
    }
    let _unmask = Unmask(mp);
    f()
}

/// Requests the cancellation of a microprocess, and ends its wait so that it observes the request.
pub(crate) fn request(who: &Waiter) {
    let asked = match who.who() {
        Who::Micro(who) => who.mp.state.cancel(who.generation),
        Who::Foreign(thread) => thread.one_to_one.cancel(),
    };
    if asked {
        who.wake();
    }
}

/// Returns the earlier of two optional deadlines.
pub fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}

/// Returns the deadline of the innermost enclosing scope that has one. Waits of `kumihimo::net` and
/// `thread::sleep` end there.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
/// use std::time::{Duration, Instant};
///
/// assert_eq!(thread::deadline(), None);
/// let deadline = Instant::now() + Duration::from_secs(60);
/// let of_child = thread::scope_until(deadline, |s| s.spawn(thread::deadline).join());
/// assert_eq!(of_child.unwrap(), Some(deadline));
/// ```
pub fn deadline() -> Option<Instant> {
    current_mp().map_or_else(foreign_thread::deadline, Mp::deadline)
}

pub(crate) fn set_deadline(deadline: Option<Instant>) {
    match current_mp() {
        Some(mp) => mp.set_deadline(deadline),
        None => foreign_thread::set_deadline(deadline),
    }
}
