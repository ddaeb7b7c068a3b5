//! Alarm: a timer of the kernel that stays armed over several sleeps of a VP.
//!
//! A sleep with a limit arms a timer, and disarms it when something else ends the sleep. On a
//! virtual machine, each of both may leave the machine for some microseconds. A server that answers
//! thousands of requests a second would pay that at each request because of one thread that sleeps
//! for a millisecond at a time. So where a second sleep has the limit of the one before, a timerfd
//! in the VP's epoll set is armed for it, and serves all sleeps until then.

use std::cell::{Cell, OnceCell};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::Duration;

use kumihimo_arch::descriptor::Descriptor;
use kumihimo_arch::kernel::epoll_ctl;

use crate::process::futex::timespec;

/// Difference, in nanoseconds, up to which two limits are the same. The kernel may end any sleep
/// later by that (prctl(2), `PR_SET_TIMERSLACK`).
const SAME: u64 = 20_000;
/// Time after which a VP that sleeps until the alarm rings wakes up without it: the program has
/// closed the timer. A timer that far behind another one costs no exit.
const GRACE: Duration = Duration::from_millis(100);

/// An alarm. Times are CLOCK_MONOTONIC in nanoseconds. Owner only.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// User data of the event in the set.
    token: u64,
    /// `None`: there is no timer, or none any more.
    timer: OnceCell<Option<Descriptor>>,
    is_lost: Cell<bool>,
    /// When it rings, or rang.
    at: Cell<u64>,
    /// Limit of the last sleep before which it was not armed.
    last: Cell<u64>,
}

/// How a sleep ends at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// After this time.
    Own(Duration),
    /// The alarm rings before. After this time the alarm is [lost](Alarm::lose).
    Alarm(Duration),
}

/// What to do before a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Rings,
    Arm,
}

impl Alarm {
    /// Creates an alarm whose event has the user data `token`.
    pub(crate) fn new(token: u64) -> Alarm {
        Alarm {
            token,
            timer: OnceCell::new(),
            is_lost: Cell::new(false),
            at: Cell::new(0),
            last: Cell::new(0),
        }
    }

    /// Returns how a sleep of at most `time` from `now` on ends, and arms the alarm if that is
    /// worth while. `epoll` is the VP's set.
    pub(crate) fn limit(&self, epoll: RawFd, now: u64, time: Duration) -> Limit {
        let until = now.saturating_add(time.as_nanos() as u64);
        let rings = match self.step(now, until) {
            Step::Nothing => false,
            Step::Rings => true,
            Step::Arm => {
                self.arm(epoll, time) && {
                    self.at.set(until);
                    true
                }
            }
        };
        if !rings {
            return Limit::Own(time);
        }
        Limit::Alarm(Duration::from_nanos(self.at.get() - now) + GRACE)
    }

    fn step(&self, now: u64, until: u64) -> Step {
        let at = self.at.get();
        if self.is_lost.get() {
            Step::Nothing
        } else if at > now && at <= until.saturating_add(SAME) {
            Step::Rings
        } else if until.abs_diff(self.last.replace(until)) <= SAME {
            Step::Arm
        } else {
            Step::Nothing
        }
    }

    /// Records that the alarm did not ring: nothing relies on it any more.
    #[cold]
    pub(crate) fn lose(&self) {
        self.is_lost.set(true);
        self.at.set(0);
    }

    /// Returns the descriptor of the timer, if there is one.
    #[cfg(test)]
    pub(crate) fn timer(&self) -> Option<RawFd> {
        self.timer.get()?.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Arms the timer, which is made first if there is none. Returns false on failure.
    fn arm(&self, epoll: RawFd, time: Duration) -> bool {
        let Some(timer) = self.timer.get_or_init(|| make(epoll, self.token)) else {
            self.lose();
            return false;
        };
        let timer = timer.as_raw_fd();
        let when = libc::itimerspec {
            it_interval: timespec(Duration::ZERO),
            // 0 would disarm it.
            it_value: timespec(time.max(Duration::from_nanos(1))),
        };
        // The set knows its own timer by file and number, so the first call fails where the number
        // is the program's by now. It reports nothing, since the timer may have rung before.
        let listen = |to| epoll_ctl(epoll, libc::EPOLL_CTL_MOD, timer, to, self.token).is_ok();
        let armed = listen(0) && set_time(timer, &when) && listen(ONCE);
        if !armed {
            self.lose();
        }
        armed
    }
}

/// A ring wakes the VP once.
const ONCE: i32 = libc::EPOLLIN | libc::EPOLLONESHOT;

/// Makes a timer in the set. `None` on failure: no descriptor, or a filter.
fn make(epoll: RawFd, token: u64) -> Option<Descriptor> {
    // SAFETY: no pointers.
    let fd = unsafe {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        kumihimo_arch::call!(libc::SYS_timerfd_create, libc::CLOCK_MONOTONIC, flags)
    };
    if fd < 0 {
        return None;
    }
    // SAFETY: a new descriptor without another owner.
    let timer = unsafe { Descriptor::from_raw_fd(fd as RawFd) };
    epoll_ctl(epoll, libc::EPOLL_CTL_ADD, timer.as_raw_fd(), 0, token).ok().map(|()| timer)
}

fn set_time(timer: RawFd, when: &libc::itimerspec) -> bool {
    // SAFETY: a live structure, copied by the kernel; the old time is not wanted.
    let done = unsafe {
        let old = std::ptr::null_mut::<libc::itimerspec>();
        kumihimo_arch::call!(libc::SYS_timerfd_settime, timer, 0, std::ptr::from_ref(when), old)
    };
    done == 0
}

#[cfg(test)]
mod tests;
