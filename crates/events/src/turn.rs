//! A kernel thread that came back without its virtual processor waits for its turn.
//!
//! Its microprocess is in a run queue, as any runnable one, but its context is in use: it stands in
//! the kernel thread's signal handler. So the scheduler that picks it hands the VP to this kernel
//! thread instead of switching (P0, figure 6: the returning kernel thread goes on, the other one
//! goes to the pool). A microprocess thereby never changes kernel threads except where it switches
//! by itself.
//!
//! ```text
//!            begin()          offer()                 hand()
//!   NONE ─────────────> QUEUED ───────> OFFERED ───────────────> HANDED ──> NONE  (it has its VP)
//!                        │  ^
//!               give_up()│  │ begin() again: the entry is still in the queue
//!              or excuse()v  │
//!                      ASTRAY ─── offer(): the entry was picked and is dropped ──> NONE
//!                      ASTRAY ─── leave(): the entry is that of any runnable one ──> NONE
//! ```
//! *Astray*: the virtual processor cannot come, because its kernel thread sleeps inside the user
//! scheduler, perhaps for a lock that this very microprocess holds (malloc's, say), or because all
//! kernel threads are in use. Then it goes on without one until it next enters the runtime. There
//! it leaves its stack and its kernel thread, which may be the only one that could carry a virtual
//! processor: the scheduler that picks its entry switches to it.
//!
//! The thread may wait again, with another microprocess, while a scheduler still holds the entry of
//! the one that left. So each new entry belongs to a *round*, and an offer says to which.
//!
//! A waiter looks now and then whether turns can come at all, for all waiters: how often they look
//! together does not depend on their number.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

const NONE: u32 = 0;
const QUEUED: u32 = 1;
const OFFERED: u32 = 2;
const HANDED: u32 = 3;
const ASTRAY: u32 = 4;

/// The low bits of [`Turn::state`] hold the phase, the others the round.
const PHASE: u32 = 7;
const ROUND: u32 = PHASE + 1;

/// The time between two looks of all waiters together, in nanoseconds.
const LOOK_EVERY: u64 = 2_000_000;

/// How long one of so many waiters sleeps before it looks, in nanoseconds.
pub(crate) fn look_every(waiters: usize) -> u64 {
    LOOK_EVERY.saturating_mul(waiters.max(1) as u64)
}

/// In [`Turn::of`]: no virtual processor.
const NOBODY: u32 = u32::MAX;

/// A run queue's entry for a microprocess that waits on its kernel thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) thread: u32,
    pub(crate) round: u32,
}

impl Ticket {
    /// Of no kernel thread.
    pub const NONE: Ticket = Ticket { thread: 0, round: 0 };

    /// The index of the kernel thread.
    #[must_use]
    pub fn thread(self) -> u32 {
        self.thread
    }
}

/// The outcome of [`Turn::offer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Offer {
    /// The thread waits. A VP must follow.
    Taken,
    /// The thread went on without a VP. The entry is dropped; the microprocess is in no queue.
    WentOn,
    /// The microprocess has left the thread since, and can be switched to.
    HasLeft,
}

/// The state of a kernel thread's wait for a VP.
#[derive(Debug, Default)]
pub struct Turn {
    /// Phase and round.
    state: AtomicU32,
    /// The virtual processor that it need not wait for if that is held up.
    of: AtomicU32,
    token: AtomicU64,
}

impl Turn {
    /// Not waiting.
    #[must_use]
    pub fn new() -> Turn {
        Turn { state: AtomicU32::new(NONE), of: AtomicU32::new(NOBODY), token: AtomicU64::new(0) }
    }

    /// By the waiter: it wants a VP. Returns the round if its microprocess has to be put into a run
    /// queue; none: it still is in one. `of`: the VP in whose queue it stands, if it may be
    /// [excused](crate::Kernel::excuse) where that is held up.
    #[must_use]
    pub fn begin(&self, of: Option<u32>) -> Option<u32> {
        self.of.store(of.unwrap_or(NOBODY), Ordering::Relaxed);
        // Release: the offering thread sees what the microprocess did. ASTRAY -> QUEUED unless the
        // entry is dropped at this moment.
        if self.step(ASTRAY, QUEUED) {
            return None;
        }
        let state = self.state.load(Ordering::Relaxed);
        debug_assert_eq!(state & PHASE, NONE);
        let round = (state & !PHASE).wrapping_add(ROUND);
        self.state.store(round | QUEUED, Ordering::Release);
        Some(round)
    }

    /// From one phase to the next, in the same round. For the waiter: nobody else begins a round.
    fn step(&self, from: u32, to: u32) -> bool {
        let round = self.state.load(Ordering::Relaxed) & !PHASE;
        self.state
            .compare_exchange(round | from, round | to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// By the waiter: whether its microprocess may still be in a run queue although it goes on
    /// without a VP.
    #[must_use]
    pub fn is_astray(&self) -> bool {
        self.state.load(Ordering::Relaxed) & PHASE == ASTRAY
    }

    /// By the waiter: it goes on without. False: it was offered a VP, which comes at once.
    fn give_up(&self) -> bool {
        self.step(QUEUED, ASTRAY)
    }

    /// By anybody: if it waits for `of`, it goes on without. It may get its VP all the same.
    pub(crate) fn excuse(&self, of: u32) {
        // Acquire: `of` is that of this round, or of a later one, where the exchange fails.
        let state = self.state.load(Ordering::Acquire);
        let astray = state & !PHASE | ASTRAY;
        if state & PHASE == QUEUED
            && self.of.load(Ordering::Relaxed) == of
            && self
                .state
                .compare_exchange(state, astray, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        {
            wake(&self.state);
        }
    }

    /// Turns the entry of an astray thread into that of a runnable microprocess. Called on the
    /// thread's own stack, after the microprocess's context was written. Returns false if the entry
    /// has been dropped, so that a new one is needed.
    #[must_use]
    pub fn leave(&self) -> bool {
        // Release: a scheduler that reads `HasLeft` also sees the context.
        self.step(ASTRAY, NONE)
    }

    /// Offers a VP to the thread. Called by the scheduler that took the entry of `round` out of a
    /// run queue and found no context in it. After [`Offer::Taken`], [`hand`](Turn::hand) must
    /// follow.
    pub fn offer(&self, round: u32) -> Offer {
        loop {
            // Acquire: of one that has left the context is there.
            let state = self.state.load(Ordering::Acquire);
            let (next, offer) = match state ^ round {
                QUEUED => (OFFERED, Offer::Taken),
                // Dropped: from now on the waiter has no entry in any queue.
                ASTRAY => (NONE, Offer::WentOn),
                // There is only one entry of a round, and the caller holds it: the thread is in no
                // phase of the round any more.
                _ => return Offer::HasLeft,
            };
            let exchanged = self.state.compare_exchange(
                state,
                round | next,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if exchanged.is_ok() {
                return offer;
            }
            // It changed its mind in between.
            crate::hint::spin_loop();
        }
    }

    /// Called by the offering thread: the VP is the waiter's.
    pub fn hand(&self, token: u64) {
        self.token.store(token, Ordering::Relaxed);
        // From OFFERED only the offering thread goes on.
        let round = self.state.load(Ordering::Relaxed) & !PHASE;
        // Release: the VP's contents go with it. After this the waiter may be gone: only the
        // address is used.
        self.state.store(round | HANDED, Ordering::Release);
        wake(&self.state);
    }

    /// What was handed over last.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token.load(Ordering::Relaxed)
    }

    /// By the waiter, after [`begin`](Turn::begin): true once a VP was handed over; false if it was
    /// [excused](crate::Kernel::excuse), or `stuck` said so before, on one of the looks that are
    /// taken `every` so many nanoseconds.
    pub(crate) fn wait(&self, every: impl Fn() -> u64, stuck: impl Fn() -> bool) -> bool {
        loop {
            let state = self.state.load(Ordering::Acquire);
            let phase = state & PHASE;
            if phase == HANDED {
                self.state.store(state & !PHASE | NONE, Ordering::Relaxed);
                return true;
            }
            // Excused; and its entry may have been dropped since.
            if phase == ASTRAY || phase == NONE {
                return false;
            }
            if !sleep(&self.state, state, every()) && phase == QUEUED && stuck() && self.give_up() {
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

    /// The waiter gives up while its entry is being picked: it gets the VP, or the picker keeps it,
    /// and the entry is counted right.
    #[test]
    fn picked_while_it_gives_up() {
        loom::model(|| {
            let turn = Arc::new(Turn::new());
            let round = turn.begin(Some(0)).expect("a new entry");
            let picker = {
                let turn = turn.clone();
                loom::thread::spawn(move || {
                    let taken = turn.offer(round) == Offer::Taken;
                    if taken {
                        turn.hand(4);
                    }
                    taken
                })
            };
            let went_astray = turn.give_up();
            if went_astray {
                // Later it wants one after all: a new entry only if the old one was dropped.
                let new_entry = turn.begin(Some(0)).is_some();
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

    /// An astray thread leaves while a scheduler picks its entry. Either the entry is dropped and
    /// the thread adds a new one, or the entry stays valid and the scheduler finds the context.
    #[test]
    fn entry_is_picked_while_the_thread_leaves() {
        loom::model(|| {
            let turn = Arc::new(Turn::new());
            let context = Arc::new(AtomicU64::new(0));
            let round = turn.begin(Some(0)).expect("a new entry");
            assert!(turn.give_up());
            let picker = {
                let (turn, context) = (turn.clone(), context.clone());
                loom::thread::spawn(move || {
                    if context.load(Ordering::Acquire) != 0 {
                        return true;
                    }
                    match turn.offer(round) {
                        Offer::Taken => panic!("that is another one's turn"),
                        Offer::WentOn => false,
                        Offer::HasLeft => {
                            assert_eq!(
                                context.load(Ordering::Relaxed),
                                7,
                                "what to switch to is there"
                            );
                            true
                        }
                    }
                })
            };
            context.store(7, Ordering::Release);
            let has_entry = turn.leave();
            // The thread waits again, with another microprocess.
            let next = turn.begin(Some(0)).expect("a new entry");
            assert!(turn.offer(next) == Offer::Taken, "the former entry does not count for it");
            assert_eq!(has_entry, picker.join().unwrap(), "it is switched to once");
        });
    }

    /// Somebody excuses the waiter while its entry is being picked: the waiter goes on in any case,
    /// with a VP exactly if the picker parted with it.
    #[test]
    fn picked_while_it_is_excused() {
        loom::model(|| {
            let turn = Arc::new(Turn::new());
            let round = turn.begin(Some(0)).expect("a new entry");
            let picker = {
                let turn = turn.clone();
                loom::thread::spawn(move || {
                    let taken = turn.offer(round) == Offer::Taken;
                    if taken {
                        turn.hand(4);
                    }
                    taken
                })
            };
            let excuser = {
                let turn = turn.clone();
                loom::thread::spawn(move || turn.excuse(0))
            };
            let has_vp = turn.wait(|| look_every(1), || false);
            assert_eq!(has_vp, picker.join().unwrap());
            excuser.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Longer than any test.
    const SECONDS: u64 = 1_000_000_000_000;

    #[test]
    fn a_waiter_gets_what_is_handed_to_it() {
        let turn = Arc::new(Turn::new());
        let round = turn.begin(Some(0)).expect("a new entry");
        let other = turn.clone();
        let picker = std::thread::spawn(move || {
            assert_eq!(other.offer(round), Offer::Taken);
            other.hand(8);
        });
        assert!(turn.wait(|| look_every(1), || false));
        assert_eq!(turn.token(), 8);
        picker.join().expect("no panic");
    }

    /// (Of four hundred each looked every 2 ms: two million looks, and the VPs that they waited for
    /// lacked the cores.)
    #[test]
    fn looks_of_all_waiters_together_are_as_many_as_of_one() {
        const SECOND: u64 = 1_000_000_000;
        for waiters in [1, 10, 100, 1_000, 100_000] {
            let looks = waiters as u64 * SECOND / look_every(waiters);
            assert_eq!(looks, 500, "{waiters} waiters");
        }
        assert_eq!(look_every(0), LOOK_EVERY);
    }

    #[test]
    fn one_that_is_excused_goes_on() {
        let turn = Arc::new(Turn::new());
        let round = turn.begin(Some(1)).expect("a new entry");
        turn.excuse(0);
        assert!(!turn.is_astray(), "it waits for another one");
        let other = turn.clone();
        let waiter = std::thread::spawn(move || other.wait(|| SECONDS, || false));
        turn.excuse(1);
        assert!(!waiter.join().expect("no panic"));
        assert!(turn.is_astray() && turn.offer(round) == Offer::WentOn);
        // One that may not be.
        let round = turn.begin(None).expect("a new entry");
        turn.excuse(1);
        assert!(!turn.is_astray() && turn.give_up() && turn.offer(round) == Offer::WentOn);
        // Excused, and its entry dropped before it could see that.
        let round = turn.begin(Some(1)).expect("a new entry");
        turn.excuse(1);
        assert!(turn.offer(round) == Offer::WentOn && !turn.wait(|| SECONDS, || false));
    }

    #[test]
    fn one_that_is_stuck_goes_on_and_its_entry_is_dropped_once() {
        let turn = Turn::new();
        let round = turn.begin(Some(0)).expect("a new entry");
        assert!(!turn.wait(|| look_every(1), || true));
        assert_eq!(turn.begin(Some(0)), None, "the entry is still queued");
        assert!(!turn.wait(|| look_every(1), || true));
        assert_eq!(turn.offer(round), Offer::WentOn);
        let round = turn.begin(Some(0)).expect("the entry was dropped");
        assert!(!turn.wait(|| look_every(1), || true));
        assert!(turn.leave(), "the entry is another one's now");
        assert_eq!(turn.offer(round), Offer::HasLeft);
    }

    /// (The offer was taken by the next microprocess on the thread, and the former one was lost.)
    #[test]
    fn an_entry_that_was_left_does_not_count_for_the_next_wait() {
        let turn = Turn::new();
        let left = turn.begin(Some(0)).expect("a new entry");
        assert!(turn.give_up() && turn.leave());
        let next = turn.begin(Some(0)).expect("a new entry");
        assert_eq!(turn.offer(left), Offer::HasLeft);
        assert!(turn.give_up());
        assert_eq!(turn.offer(left), Offer::HasLeft);
        assert!(turn.is_astray());
        assert_eq!(turn.offer(next), Offer::WentOn);
    }
}
