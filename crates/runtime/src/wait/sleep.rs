//! Yielding and sleeping, as users request it.

use std::time::{Duration, Instant};

use kumihimo_policy::Why;

use crate::microprocess::foreign_thread;
use crate::microprocess::wait_reason::Wait;
use crate::process::clock::after;
use crate::process::futex;
use crate::scheduler::carrier::Carrier;
use crate::upcall::sticky;
use crate::wait::{cancel, park};

#[cold]
fn give_way() {
    if let Some(carrier) = Carrier::regain() {
        carrier.give_way(Why::Yielded);
    }
}

/// Lets other microprocesses of the same priority or above run on this VP, if there are any.
/// Cancellation point.
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
            match sticky::leave_to_yield() {
                Some(carrier) => drop(carrier.give_way(Why::Yielded)),
                None => std::thread::yield_now(),
            }
        }
    }
}

/// Blocks the microprocess for at least `time`, or until its scope's deadline. A time of zero
/// yields. Cancellation point.
pub fn sleep(time: Duration) {
    sleep_until(after(time));
}

/// Blocks the microprocess until `deadline`, or until its scope's deadline if that is earlier.
/// Cancellation point.
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
    while Instant::now() < deadline && !cancel::would_unwind() {
        park::park(Wait::Sleep, Some(deadline));
        waited = true;
    }
    // A polling loop would starve other microprocesses.
    if waited { cancel::point() } else { yield_now() }
}
