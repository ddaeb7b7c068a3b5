//! The watchdog's state: what other threads record for it, and the alarm on which it sleeps.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::config::{Distrust, OnMisbehaviour};
use crate::linux::watch;
use crate::loom::futex;

/// In [`VpRecord::blocked_call`]: the call was overridden.
pub(crate) const OVERRIDDEN: u64 = 1 << 63;

/// The watchdog's record of a VP.
#[derive(Debug, Default)]
pub(crate) struct VpRecord {
    /// The call of `blocked` that is under way: the caller's thread ID, and in the upper half the
    /// number of the call; 0: none.
    pub(crate) blocked_call: AtomicU64,
    pub(crate) calls: AtomicU32,
    /// Whether *Preempted* was raised since the last scan.
    pub(crate) raised: AtomicBool,
    /// Whether the VP is written off: its kernel thread is stuck with it.
    pub(crate) written_off: AtomicBool,
}

/// In [`Alarm`].
pub(crate) const AWAKE: u32 = 0;
pub(crate) const ASLEEP: u32 = 1;
pub(crate) const ENDED: u32 = 2;

/// The futex word on which the watchdog sleeps.
#[derive(Debug)]
pub(crate) struct Alarm(pub(crate) AtomicU32);

impl Alarm {
    pub(crate) fn wait(&self, expected: u32, timeout: Option<Duration>) {
        futex::wait(&self.0, expected, timeout);
    }

    pub(crate) fn wake(&self) {
        futex::wake(&self.0);
    }
}

/// The watchdog's state, and the records of other threads for it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    pub(crate) on: AtomicU8,
    pub(crate) bound: AtomicU64,
    pub(crate) vps: Box<[VpRecord]>,
    /// By slot: the number of transitions into and out of rest; odd: the thread rests.
    pub(crate) rests: Box<[AtomicU32]>,
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) started: AtomicBool,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
    pub(crate) violations: [AtomicU64; 4],
    /// Violations found so far that are to be overridden.
    pub(crate) to_override: AtomicU64,
    /// Violations overridden: updated after the user scheduler was notified, so that no more work
    /// goes to the VP.
    pub(crate) overridden: AtomicU64,
}

impl Watchdog {
    pub(crate) fn new(vps: u32, slots: u32) -> Watchdog {
        let watchdog = Watchdog {
            on: AtomicU8::new(0),
            bound: AtomicU64::new(0),
            vps: (0..vps).map(|_| VpRecord::default()).collect(),
            rests: (0..=slots).map(|_| AtomicU32::new(0)).collect(),
            alarm: Arc::new(Alarm(AtomicU32::new(AWAKE))),
            started: AtomicBool::new(false),
            thread: Mutex::default(),
            violations: [const { AtomicU64::new(0) }; 4],
            to_override: AtomicU64::new(0),
            overridden: AtomicU64::new(0),
        };
        watchdog.set(Distrust::default());
        watchdog
    }

    pub(crate) fn set(&self, distrust: Distrust) {
        let bound = distrust
            .bound
            .clamp(Duration::from_millis(Distrust::LEAST), Duration::from_millis(Distrust::MOST));
        self.bound.store(bound.as_nanos() as u64, Ordering::Relaxed);
        self.on.store(distrust.on as u8, Ordering::Relaxed);
    }

    pub(crate) fn on(&self) -> OnMisbehaviour {
        use OnMisbehaviour::{End, Ignore, Override, Report};
        [Ignore, Report, Override, End][usize::from(self.on.load(Ordering::Relaxed))]
    }

    pub(crate) fn does(&self, what: OnMisbehaviour) -> bool {
        self.on.load(Ordering::Relaxed) >= what as u8
    }

    pub(crate) fn pace(&self) -> Duration {
        Duration::from_nanos(self.bound.load(Ordering::Relaxed) / 4)
    }

    /// Notes that the kernel thread of slot `index` rests, or no longer does. Called by that
    /// thread. If it does not rest, it executes a fence afterwards and calls
    /// [`wake_if_asleep`](Watchdog::wake_if_asleep).
    pub(crate) fn rest(&self, index: u32, rests: bool) {
        let word = &self.rests[index as usize];
        let next = word.load(Ordering::Relaxed).wrapping_add(1);
        word.store(if rests { next | 1 } else { next & !1 }, Ordering::Relaxed);
    }

    /// Returns whether the kernel thread of slot `index` sleeps on purpose.
    pub(crate) fn rests(&self, index: u32) -> bool {
        self.rests[index as usize].load(Ordering::Relaxed) & 1 == 1
    }

    /// Wakes the watchdog if it sleeps. The caller runs again, and recorded that before a
    /// sequentially consistent fence. Async-signal-safe.
    #[inline]
    pub(crate) fn wake_if_asleep(&self) {
        if self.alarm.0.load(Ordering::Relaxed) == ASLEEP {
            self.wake();
        }
    }

    #[cold]
    pub(crate) fn wake(&self) {
        if self
            .alarm
            .0
            .compare_exchange(ASLEEP, AWAKE, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.alarm.wake();
        }
    }

    pub(crate) fn raised(&self, vp: u32) {
        self.vps[vp as usize].raised.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_written_off(&self, vp: u32) -> bool {
        self.vps[vp as usize].written_off.load(Ordering::Relaxed)
    }

    /// Notes that the calling kernel thread, which owns `vp`, is about to call `blocked`.
    pub(crate) fn begin_blocked(&self, vp: u32) {
        let of = &self.vps[vp as usize];
        let number = u64::from(of.calls.fetch_add(1, Ordering::Relaxed) & 0x3fff_ffff) + 1;
        of.blocked_call.store(number << 32 | watch::this_tid() as u64, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.wake_if_asleep();
    }

    /// Notes that `blocked` has returned. Returns whether the call was overridden meanwhile.
    pub(crate) fn finish_blocked(&self, vp: u32) -> bool {
        self.vps[vp as usize].blocked_call.swap(0, Ordering::Relaxed) & OVERRIDDEN != 0
    }

    /// Waits for the end of the watchdog's thread. Blocks.
    pub(crate) fn join(&self) {
        self.end();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the watchdog's thread leaves no shared state half updated.
            let _ = thread.join();
        }
    }

    pub(crate) fn end(&self) {
        self.alarm.0.store(ENDED, Ordering::SeqCst);
        self.alarm.wake();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests;
