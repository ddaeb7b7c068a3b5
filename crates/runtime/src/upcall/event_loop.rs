//! Event loops: microprocesses that wait for a set of descriptors of their own (epoll(7)).
//!
//! As a microprocess, such a wait costs two system calls more than on a kernel thread: a look at
//! the set, and the sleep of the VP, whose own set contains that of the program. The VP repays them
//! where it has others to run meanwhile. A loop that waits often and finds nobody else there
//! becomes *sticky* ([`crate::upcall::sticky`]) and waits in the kernel. One that has idled there
//! for [`IDLE`] gives its kernel thread up.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::kernel_thread::gs_record::current_mp;
use crate::microprocess::sticky_state::Reason;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::vp::Vp;
use crate::upcall::{bind, sticky, sticky_return};

/// Longest wait in the kernel. It bounds the number of kernel threads by that of the loops that do
/// something.
pub const IDLE: Duration = Duration::from_millis(100);

/// Points, one for each wait with nobody else on the VP, at which a loop becomes sticky. The
/// hand-over of the VP costs as much as about fifteen such waits.
const ALONE: u32 = 64;
/// Points that a wait during which others have run takes away.
const SHARED: u32 = 4;
/// Time within which the points must come together, in nanoseconds: beside a wait of several
/// milliseconds, two system calls do not matter.
const WITHIN: u64 = 200_000_000;

/// The last waits of a thread for a set of its own.
#[derive(Debug)]
pub struct EventLoop {
    /// Number of switches of the VP at the last wait, if nobody else was runnable there.
    switches: Cell<Option<u64>>,
    points: Cell<u32>,
    /// When it had its first point.
    since: Cell<u64>,
}

impl EventLoop {
    /// A thread that has not waited yet.
    pub const fn new() -> EventLoop {
        EventLoop { switches: Cell::new(None), points: Cell::new(0), since: Cell::new(0) }
    }

    /// Counts that the caller is about to wait for a set that is empty. Returns whether it is to
    /// wait in the kernel from here on, at most [`IDLE`] each time: it has no VP then. False
    /// outside of microprocesses. May switch.
    ///
    /// A loop stays on its VP where levels differ, and where no kernel thread is left for it.
    #[must_use]
    pub fn leaves_vp(&self) -> bool {
        let Some(carrier) = Carrier::regain() else { return false };
        let Some(mp) = carrier.running() else { return false };
        let vp = carrier.vp();
        if !self.is_often_alone(vp) {
            return false;
        }
        let instance = vp.instance();
        let may_stick =
            instance.settings.sticky && !instance.levels_differ_for(mp) && !mp.state.is_suspended();
        may_stick && bind::stay_to_wait(mp, carrier, Reason::EventLoop)
    }

    /// Counts a wait on `vp`. Owner of the VP only.
    fn is_often_alone(&self, vp: &Vp) -> bool {
        let switches = vp.counters.switches.load(Ordering::Relaxed);
        let is_empty = vp.queue().is_empty();
        let before = self.switches.replace(is_empty.then_some(switches));
        // The VP has gone idle, and back to the caller.
        let was_alone = before.is_some_and(|before| switches == before.wrapping_add(2));
        self.count(was_alone, || vp.instance().now())
    }

    fn count(&self, was_alone: bool, now: impl Fn() -> u64) -> bool {
        let points = self.points.get();
        let points = if was_alone { points + 1 } else { points.saturating_sub(SHARED) };
        self.points.set(points % ALONE);
        if points == 1 {
            self.since.set(now());
        }
        points == ALONE && now().saturating_sub(self.since.get()) <= WITHIN
    }
}

impl Default for EventLoop {
    fn default() -> EventLoop {
        EventLoop::new()
    }
}

/// Whether the caller has left its VP as an event loop.
#[inline]
pub fn has_left_vp() -> bool {
    current_mp().is_some_and(|mp| mp.sticky.reason() == Some(Reason::EventLoop))
}

/// Returns the caller, an event loop that has idled, to a VP. May switch.
pub fn return_to_vp() {
    if let Some((kt, mp)) = sticky::current() {
        drop(sticky_return::leave(kt, mp));
    }
}

#[cfg(test)]
mod tests;
