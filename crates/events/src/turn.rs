//! A kernel thread that came back without its virtual processor waits for its turn.
//!
//! Its microprocess is in a run queue, as any runnable one, but its context is in use: it stands in the kernel thread's signal handler. So who picks it
//! hands the VP to this kernel thread instead of switching (P0, figure 6: the returning kernel thread goes on, the other one goes to the
//! pool). A microprocess thereby never changes kernel threads except where it switches by itself.
//!
//! ```text
//!            begin()          offer()                 hand()
//!   NONE ─────────────> QUEUED ───────> OFFERED ───────────────> HANDED ──> NONE   (the waiter has its VP)
//!                        │  ^
//!               give_up()│  │ begin() again: the entry is still in the queue
//!                        v  │
//!                      ASTRAY ─── offer(): the entry was picked and is dropped ──> NONE
//! ```
//! *Astray*: the virtual processor cannot come, because its kernel thread sleeps inside the user scheduler, perhaps for a lock that this very
//! microprocess holds (malloc's, say). Then it goes on without one until it next enters the runtime.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

const NONE: u32 = 0;
const QUEUED: u32 = 1;
const OFFERED: u32 = 2;
const HANDED: u32 = 3;
const ASTRAY: u32 = 4;

/// How long a waiter sleeps before it looks whether its turn can come at all, in nanoseconds, where
/// few wait ...
const LOOK_EVERY: u64 = 2_000_000;
/// ... and for each waiter that there is, where many do. A look takes some microseconds: all of them
/// together take a small part of one core, however many wait.
const LOOK_APART: u64 = 100_000;

/// How long one of so many waiters sleeps before it looks, in nanoseconds.
pub(crate) fn look_every(waiters: usize) -> u64 {
    LOOK_EVERY.max(waiters as u64 * LOOK_APART)
}

/// The state of a kernel thread's wait for a VP.
#[derive(Debug, Default)]
pub struct Turn {
    state: AtomicU32,
    token: AtomicU64,
}

impl Turn {
    /// Not waiting.
    #[must_use]
    pub fn new() -> Turn {
        Turn { state: AtomicU32::new(NONE), token: AtomicU64::new(0) }
    }

    /// By the waiter: it wants a VP. True: its microprocess has to be put into a run queue; false: it still is in one.
    #[must_use]
    pub fn begin(&self) -> bool {
        // Release: who offers sees what the microprocess did. ASTRAY -> QUEUED unless the entry is dropped at this moment.
        if self.state.compare_exchange(ASTRAY, QUEUED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return false;
        }
        debug_assert_eq!(self.state.load(Ordering::Relaxed), NONE);
        self.state.store(QUEUED, Ordering::Release);
        true
    }

    /// By the waiter: whether its microprocess may still be in a run queue although it goes on without a VP.
    #[must_use]
    pub fn is_astray(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ASTRAY
    }

    /// By the waiter: it goes on without. False: it was offered a VP, which comes at once.
    fn give_up(&self) -> bool {
        self.state.compare_exchange(QUEUED, ASTRAY, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// By who picked the entry out of a run queue: whether the waiter is there to take a VP. If so, [`hand`](Turn::hand) must follow.
    #[must_use]
    pub fn offer(&self) -> bool {
        loop {
            match self.state.compare_exchange(QUEUED, OFFERED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                // Dropped: from now on the waiter has no entry in any queue.
                Err(_) if self.state.compare_exchange(ASTRAY, NONE, Ordering::AcqRel, Ordering::Acquire).is_ok() => {
                    return false;
                }
                // It changed its mind in between.
                Err(_) => crate::hint::spin_loop(),
            }
        }
    }

    /// By who offered: the VP is the waiter's.
    pub fn hand(&self, token: u64) {
        self.token.store(token, Ordering::Relaxed);
        // Release: the VP's contents go with it. After this the waiter may be gone: only the address is used.
        self.state.store(HANDED, Ordering::Release);
        wake(&self.state);
    }

    /// What was handed over last.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token.load(Ordering::Relaxed)
    }

    /// By the waiter, after [`begin`](Turn::begin): true once a VP was handed over; false if `stuck`
    /// said so before, on one of the looks that are taken `every` so many nanoseconds.
    pub(crate) fn wait(&self, every: impl Fn() -> u64, stuck: impl Fn() -> bool) -> bool {
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state == HANDED {
                self.state.store(NONE, Ordering::Relaxed);
                return true;
            }
            if !sleep(&self.state, state, every()) && state == QUEUED && stuck() && self.give_up() {
                return false;
            }
        }
    }
}

/// False if the time was over.
#[cfg(not(loom))]
fn sleep(word: &AtomicU32, expected: u32, nanoseconds: u64) -> bool {
    let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    let time = libc::timespec { tv_sec: seconds as libc::time_t, tv_nsec: rest as libc::c_long };
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a live word and a live timespec.
    let r = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, expected, &raw const time) };
    // SAFETY: this thread's errno.
    r == 0 || unsafe { *libc::__errno_location() } != libc::ETIMEDOUT
}

#[cfg(not(loom))]
fn wake(word: &AtomicU32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: FUTEX_WAKE only uses the address as a key; it reads and writes nothing there.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, 1) };
}

#[cfg(loom)]
fn sleep(_word: &AtomicU32, _expected: u32, _nanoseconds: u64) -> bool {
    loom::thread::yield_now();
    false
}

#[cfg(loom)]
fn wake(_word: &AtomicU32) {}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;

    /// The waiter gives up while its entry is being picked: it gets the VP, or the picker keeps it, and the entry is counted right.
    #[test]
    fn picked_while_it_gives_up() {
        loom::model(|| {
            let turn = Arc::new(Turn::new());
            assert!(turn.begin());
            let picker = {
                let turn = turn.clone();
                loom::thread::spawn(move || {
                    let taken = turn.offer();
                    if taken {
                        turn.hand(4);
                    }
                    taken
                })
            };
            let went_astray = turn.give_up();
            if went_astray {
                // Later it wants one after all: a new entry only if the old one was dropped.
                let new_entry = turn.begin();
                let taken = picker.join().unwrap();
                assert_eq!(new_entry, !taken, "one entry, and one offer for it");
                if taken {
                    assert!(turn.wait(|| look_every(1), || false));
                }
            } else {
                assert!(picker.join().unwrap());
                assert!(turn.wait(|| look_every(1), || false));
                assert_eq!(turn.token(), 4);
            }
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_waiter_gets_what_is_handed_to_it() {
        let turn = Arc::new(Turn::new());
        assert!(turn.begin());
        let other = turn.clone();
        let picker = std::thread::spawn(move || {
            assert!(other.offer());
            other.hand(8);
        });
        assert!(turn.wait(|| look_every(1), || false));
        assert_eq!(turn.token(), 8);
        picker.join().expect("no panic");
    }

    /// (A thousand of them took more than two cores, which the VPs that they waited for then lacked.)
    #[test]
    fn looks_of_all_waiters_together_are_bounded() {
        const SECOND: u64 = 1_000_000_000;
        assert_eq!(look_every(1), LOOK_EVERY);
        for waiters in [1, 10, 100, 1_000, 100_000] {
            let looks = waiters as u64 * SECOND / look_every(waiters);
            assert!(looks <= SECOND / LOOK_APART, "{waiters} waiters: {looks} looks a second");
        }
    }

    #[test]
    fn one_that_is_stuck_goes_on_and_its_entry_is_dropped_once() {
        let turn = Turn::new();
        assert!(turn.begin());
        assert!(!turn.wait(|| look_every(1), || true));
        assert!(!turn.begin(), "the entry is still queued");
        assert!(!turn.wait(|| look_every(1), || true));
        assert!(!turn.offer());
        assert!(turn.begin(), "the entry was dropped");
    }
}
