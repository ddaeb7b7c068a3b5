//! Yielding and sleeping, as users request it.

use std::time::{Duration, Instant};

use kumihimo_policy::Why;

use crate::microprocess::foreign_thread;
use crate::microprocess::wait_reason::Wait;
use crate::process::clock::after;
use crate::process::futex;
use crate::scheduler::carrier::Carrier;
use crate::upcall::sticky_return;
use crate::wait::{cancel, interrupt, park};

#[cold]
fn give_way() {
    if let Some(carrier) = Carrier::regain() {
        carrier.give_way(Why::Yielded);
    }
}

/// Lets other microprocesses of the same priority or above run on this VP, if there are any.
/// Cancellation point.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// let ready = AtomicBool::new(false);
/// thread::scope(|s| {
///     s.spawn(|| ready.store(true, Ordering::Release));
///     while !ready.load(Ordering::Acquire) {
///         thread::yield_now();
///     }
/// });
/// assert!(ready.into_inner());
/// ```
#[inline]
pub fn yield_now() {
    match Carrier::regain() {
        Some(carrier) => {
            let Some(mp) = carrier.running() else { return };
            if mp.state.is_cancelled() {
                // `point` may unwind, and may switch if masked: the carrier must be released
                // before.
                drop(carrier);
                cancel::point();
                return give_way();
            }
            carrier.give_way(Why::Yielded);
        }
        None => {
            cancel::point();
            match sticky_return::leave_to_yield() {
                Some(carrier) => drop(carrier.give_way(Why::Yielded)),
                None => std::thread::yield_now(),
            }
        }
    }
}

/// Blocks the microprocess (or the kernel thread if it runs none) for at least `time`, or until its
/// scope's deadline. A time of zero yields. Cancellation point.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
/// use std::time::{Duration, Instant};
///
/// let begun = Instant::now();
/// let sleepers: Vec<_> =
///     (0..100).map(|_| thread::spawn(|| thread::sleep(Duration::from_millis(20)))).collect();
/// for sleeper in sleepers {
///     sleeper.join().unwrap();
/// }
/// // All sleep at the same time.
/// assert!(begun.elapsed() >= Duration::from_millis(20));
/// assert!(begun.elapsed() < 100 * Duration::from_millis(20));
/// ```
pub fn sleep(time: Duration) {
    sleep_until(after(time));
}

/// Blocks the microprocess (or the kernel thread if it runs none) until `deadline`, or until its
/// scope's deadline if that is earlier. Cancellation point.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
/// use std::time::{Duration, Instant};
///
/// // Three steps of a clock that does not drift.
/// let mut next = Instant::now();
/// for _ in 0..3 {
///     next += Duration::from_millis(1);
///     thread::sleep_until(next);
///     assert!(Instant::now() >= next);
/// }
/// ```
pub fn sleep_until(deadline: Instant) {
    cancel::point();
    let deadline = cancel::deadline().map_or(deadline, |d| d.min(deadline));
    if !park::waits_as_microprocess() && !foreign_thread::is_one_to_one() {
        // Also inside `blocking` and on foreign kernel threads, which no thread wakes early.
        while Instant::now() < deadline {
            futex::nap(deadline);
        }
        return;
    }
    let mut waited = false;
    while Instant::now() < deadline && !cancel::would_unwind() && !interrupt::is_due() {
        park::park(Wait::Sleep, Some(deadline));
        waited = true;
    }
    // A polling loop would starve other microprocesses.
    if waited { cancel::point() } else { yield_now() }
}
