//! Return queue: kernel threads that came back from a sleep without their virtual processor.
//!
//! The microprocess of such a thread is in a run queue, like any runnable microprocess. But its
//! context is in use: the microprocess is inside the signal handler of its kernel thread. So the
//! scheduler that picks the entry hands the VP to this kernel thread instead of switching. In P0,
//! figure 6, the returning kernel thread continues and the other one enters the pool. A
//! microprocess thereby changes kernel threads only where it switches by itself.
//!
//! A [`Waiter`] is one kernel thread's state in the queue, a [`Ticket`] its entry in a run queue:
//!
//! ```text
//!            begin()          offer()                 hand()
//!   NONE ─────────────> QUEUED ───────> OFFERED ───────────────> HANDED ──> NONE  (it has its VP)
//!                        │  ^
//!               give_up()│  │ begin() again: the entry is still in the queue
//!             or release()v │
//!                    DETACHED ─── offer(): the entry was picked and is dropped ──> NONE
//!                    DETACHED ─── leave(): the entry is that of any runnable one ──> NONE
//! ``` *Detached*: the thread continues without a VP until it next enters the runtime. It detaches
//! if the VP cannot come. The VP's kernel thread may sleep inside the user scheduler, perhaps
//! waiting for a lock that this very microprocess holds (malloc's, for example). Or all kernel
//! threads are in use. When a detached thread enters the runtime, the microprocess leaves its stack
//! and its kernel thread. That kernel thread may be the only one that can carry a VP. The scheduler
//! that picks the entry then switches to the microprocess.
//!
//! The thread may wait again, with another microprocess, while a scheduler still holds the entry of
//! the former microprocess. So each new entry carries a *generation*, and an offer names the
//! generation that it is for.
//!
//! A waiter periodically polls whether a VP can still come. The interval grows with the number of
//! waiters, so that the total rate of polls is constant.

use std::time::Duration;

use crate::loom::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::loom::{futex, hint};

const NONE: u32 = 0;
const QUEUED: u32 = 1;
const OFFERED: u32 = 2;
const HANDED: u32 = 3;
const DETACHED: u32 = 4;

/// The low bits of [`Waiter::state`] hold the phase, the others the generation.
const PHASE: u32 = 7;
const GENERATION: u32 = PHASE + 1;

/// The time between two polls of all waiters together, in nanoseconds.
const POLL_INTERVAL: u64 = 2_000_000;

/// Returns the time that one of `waiters` waiters sleeps between two polls, in nanoseconds.
pub(crate) fn poll_interval(waiters: usize) -> u64 {
    POLL_INTERVAL.saturating_mul(waiters.max(1) as u64)
}

/// In [`Waiter::vp`]: no virtual processor.
const NO_VP: u32 = u32::MAX;

/// A run queue's entry for a microprocess that waits on its kernel thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) thread: u32,
    pub(crate) generation: u32,
}

impl Ticket {
    /// The ticket of no kernel thread.
    pub const NONE: Ticket = Ticket { thread: 0, generation: 0 };

    /// Creates the ticket of a wait that [began](Waiter::begin) on the kernel thread with this
    /// index.
    #[must_use]
    pub fn new(thread: u32, generation: u32) -> Ticket {
        Ticket { thread, generation }
    }

    /// Returns the index of the kernel thread.
    #[must_use]
    pub fn thread(self) -> u32 {
        self.thread
    }

    /// Returns the generation of the entry, for [`Waiter::offer`].
    #[must_use]
    pub fn generation(self) -> u32 {
        self.generation
    }
}

/// The outcome of [`Waiter::offer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Offer {
    /// The thread waits and accepts the VP, which must follow.
    Accepted,
    /// The thread went on without a VP. The entry is dropped: the microprocess is in no queue.
    EntryDropped,
    /// The microprocess has left the thread since, and can be switched to.
    Switchable,
}

/// A kernel thread's wait for a VP.
#[derive(Debug, Default)]
pub struct Waiter {
    /// Phase and generation.
    state: AtomicU32,
    /// The VP whose stall ends the wait ([`release`](Waiter::release)), or [`NO_VP`].
    vp: AtomicU32,
    token: AtomicU64,
}

impl Waiter {
    /// Creates the state of a thread that does not wait.
    #[must_use]
    pub fn new() -> Waiter {
        Waiter { state: AtomicU32::new(NONE), vp: AtomicU32::new(NO_VP), token: AtomicU64::new(0) }
    }

    /// Begins a wait. Returns the generation of the new entry that the caller must put into a run
    /// queue, or `None` if the previous entry is still in one. `vp` is the VP in whose queue the
    /// entry stands, if [`Kernel::release_waiters`](crate::Kernel::release_waiters) may end the
    /// wait. Called by the waiter.
    #[must_use]
    pub fn begin(&self, vp: Option<u32>) -> Option<u32> {
        self.vp.store(vp.unwrap_or(NO_VP), Ordering::Relaxed);
        // Release: the offering thread sees the memory that the microprocess wrote. The exchange
        // from DETACHED to QUEUED fails only if the entry is dropped at the same time.
        if self.step(DETACHED, QUEUED) {
            return None;
        }
        let state = self.state.load(Ordering::Relaxed);
        debug_assert_eq!(state & PHASE, NONE);
        let generation = (state & !PHASE).wrapping_add(GENERATION);
        self.state.store(generation | QUEUED, Ordering::Release);
        Some(generation)
    }

    /// Steps from one phase to the next within the generation. Called by the waiter, since only the
    /// waiter begins a generation.
    fn step(&self, from: u32, to: u32) -> bool {
        let generation = self.state.load(Ordering::Relaxed) & !PHASE;
        self.state
            .compare_exchange(
                generation | from,
                generation | to,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok()
    }

    /// Returns whether the microprocess may still be in a run queue although it continues without a
    /// VP. Called by the waiter; for other threads the result may be out of date.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.state.load(Ordering::Relaxed) & PHASE == DETACHED
    }

    /// As [`is_detached`](Waiter::is_detached), for the wait of `generation`. Called by any thread;
    /// the result may be out of date.
    pub(crate) fn is_detached_in(&self, generation: u32) -> bool {
        self.state.load(Ordering::Relaxed) ^ generation == DETACHED
    }

    /// Ends the wait without a VP. Returns false if a VP was offered; the offering thread hands it
    /// over immediately. Called by the waiter.
    fn give_up(&self) -> bool {
        self.step(QUEUED, DETACHED)
    }

    /// Ends the wait if it is for `vp`. The waiter may still receive its VP. Called by any thread.
    pub(crate) fn release(&self, vp: u32) {
        // Acquire: `vp` belongs to the wait whose phase was read. The exchange may meet a later
        // wait of the same generation for another VP. That wait is then released needlessly, which
        // is harmless.
        let state = self.state.load(Ordering::Acquire);
        let detached = state & !PHASE | DETACHED;
        if state & PHASE == QUEUED
            && self.vp.load(Ordering::Relaxed) == vp
            && self
                .state
                .compare_exchange(state, detached, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        {
            futex::wake(&self.state);
        }
    }

    /// Turns the entry of a detached thread into that of a runnable microprocess. Returns false if
    /// the entry was dropped, so that the caller must add a new one. Called on the thread's own
    /// stack, after the microprocess's context was written.
    #[must_use]
    pub fn leave(&self) -> bool {
        // Release: a scheduler that reads `Switchable` also sees the context.
        self.step(DETACHED, NONE)
    }

    /// Offers a VP to the thread. Called by the scheduler that took the entry of `generation` out
    /// of a run queue and found no context in it. After [`Offer::Accepted`], [`hand`](Waiter::hand)
    /// must follow.
    pub fn offer(&self, generation: u32) -> Offer {
        loop {
            // Acquire: the context of a microprocess that has left is visible.
            let state = self.state.load(Ordering::Acquire);
            let (next, offer) = match state ^ generation {
                QUEUED => (OFFERED, Offer::Accepted),
                // Dropped: from now on the waiter has no entry in any queue.
                DETACHED => (NONE, Offer::EntryDropped),
                // NONE of this generation, or a later generation: the microprocess has left.
                _ => return Offer::Switchable,
            };
            let exchanged = self.state.compare_exchange(
                state,
                generation | next,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if exchanged.is_ok() {
                return offer;
            }
            // The waiter changed the phase in between.
            hint::spin_loop();
        }
    }

    /// Hands the VP over. Called by the offering thread.
    pub fn hand(&self, token: u64) {
        self.token.store(token, Ordering::Relaxed);
        // Only the offering thread leaves the phase OFFERED.
        let generation = self.state.load(Ordering::Relaxed) & !PHASE;
        // Release: publishes the VP's contents. The waiter may be gone after this store: the
        // wake-up uses only the address.
        self.state.store(generation | HANDED, Ordering::Release);
        futex::wake(&self.state);
    }

    /// Returns the token of the VP that was handed over last.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token.load(Ordering::Relaxed)
    }

    /// Waits after [`begin`](Waiter::begin). Returns true once a VP was handed over, or false if
    /// the wait was released (`release`) or a poll of `stuck` returned true. `every` returns
    /// the time between two polls in nanoseconds. Called by the waiter.
    pub fn wait(&self, every: impl Fn() -> u64, stuck: impl Fn() -> bool) -> bool {
        loop {
            let state = self.state.load(Ordering::Acquire);
            let phase = state & PHASE;
            if phase == HANDED {
                // Release: a scheduler that still holds the entry of a former generation may read
                // this word. `Switchable` guarantees that it sees the context written before
                // `leave`.
                self.state.store(state & !PHASE | NONE, Ordering::Release);
                return true;
            }
            // The wait was released. The entry may have been dropped since.
            if phase == DETACHED || phase == NONE {
                return false;
            }
            let timeout = Some(Duration::from_nanos(every()));
            if !futex::wait(&self.state, state, timeout)
                && phase == QUEUED
                && stuck()
                && self.give_up()
            {
                return false;
            }
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    mod loom;
}

#[cfg(all(test, not(loom)))]
mod tests;
