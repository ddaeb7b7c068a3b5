//! Cell of a row: one VP, its sleep, and how other threads wake it.
//!
//! Other processes can write anything to a board. Therefore a cell is only compared with valid
//! values, and a wrong word costs only its own VP time; see [`Cell::claim_wake`].

use std::time::Duration;

use crate::loom::{AtomicU32, AtomicU64, Ordering, fence, futex};

/// The VP runs microprocesses and checks for work at its next step.
const RUNNING: u32 = 0;
/// The VP is idle and polls for work.
const POLLING: u32 = 1;
/// The VP sleeps on the futex of its word, or is about to.
const ON_FUTEX: u32 = 2;
/// The VP sleeps on descriptors in poll(2), or is about to.
const ON_DESCRIPTORS: u32 = 3;
/// A waker has claimed the wake-up, but the VP has not returned from its sleep yet.
const WOKEN: u32 = 4;

/// Kernel object on which a sleeping VP waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepMode {
    /// The futex of the cell's word: [`Cell::wake`] wakes the VP.
    Futex,
    /// A descriptor, through which only its own address space can wake it.
    Descriptors,
}

/// Cell of a VP. All zeroes mean that the VP runs.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Cell {
    word: AtomicU32,
    /// Core on which the VP last went to sleep, plus one; 0 if unknown.
    core: AtomicU32,
    /// Time of the VP's last check for posts, CLOCK_MONOTONIC in nanoseconds.
    last_poll: AtomicU64,
    /// Core for which the VP waits, and its mark ([`crate::slot`]); 0 if it does not wait.
    waits: AtomicU32,
    /// Kernel thread that carries the VP; 0 if unknown.
    thread: AtomicU32,
    /// CPU time of the VP in nanoseconds.
    used: AtomicU64,
}

impl Default for Cell {
    fn default() -> Cell {
        Cell::new()
    }
}

impl Cell {
    /// Offset of the word that holds the state, in bytes.
    #[cfg(not(loom))]
    pub(crate) const WORD: usize = std::mem::offset_of!(Cell, word);
    /// State of a VP that sleeps on descriptors.
    #[cfg(not(loom))]
    pub(crate) const ASLEEP_ON_DESCRIPTORS: u32 = ON_DESCRIPTORS;

    /// Creates the cell of a running VP.
    #[must_use]
    pub fn new() -> Cell {
        Cell {
            word: AtomicU32::new(RUNNING),
            core: AtomicU32::new(0),
            last_poll: AtomicU64::new(0),
            waits: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            used: AtomicU64::new(0),
        }
    }

    /// Marks the owner as idle and polling, until it sleeps or [runs](Cell::set_running).
    pub fn set_polling(&self) {
        self.word.store(POLLING, Ordering::Relaxed);
    }

    /// Marks the owner as running. Called in a state in which no thread wakes it.
    pub fn set_running(&self) {
        self.word.store(RUNNING, Ordering::Relaxed);
    }

    /// Announces that the owner is about to sleep. The owner must check for work once more
    /// afterwards.
    pub fn prepare_sleep(&self, mode: SleepMode) {
        self.word.store(
            if mode == SleepMode::Futex { ON_FUTEX } else { ON_DESCRIPTORS },
            Ordering::Relaxed,
        );
        fence(Ordering::SeqCst);
    }

    /// Marks the owner as running after a sleep. Returns whether a waker claimed the wake-up.
    pub fn finish_sleep(&self) -> bool {
        self.word.swap(RUNNING, Ordering::Acquire) == WOKEN
    }

    /// Claims the wake-up, from the owner's address space, after the caller has stored work for the
    /// VP. Returns how the caller must wake the VP, or `None` if it need not.
    ///
    /// A stray write to the cell can lose a wake-up. The VP then finds the work when its timed
    /// sleep ends.
    #[must_use]
    pub fn claim_wake(&self) -> Option<SleepMode> {
        fence(Ordering::SeqCst);
        match self.word.load(Ordering::Relaxed) {
            ON_FUTEX => self.claim_wake_from(ON_FUTEX).then_some(SleepMode::Futex),
            ON_DESCRIPTORS => {
                self.claim_wake_from(ON_DESCRIPTORS).then_some(SleepMode::Descriptors)
            }
            _ => None,
        }
    }

    /// Claims the wake-up, from another address space. After [`SleepMode::Futex`] the caller must
    /// [wake](Cell::wake) the VP. [`SleepMode::Descriptors`] changes nothing: a caller that cannot
    /// wake the VP must not claim the wake-up, or later wakers would skip the VP.
    #[must_use]
    pub fn claim_wake_remote(&self) -> Option<SleepMode> {
        fence(Ordering::SeqCst);
        match self.word.load(Ordering::Relaxed) {
            ON_FUTEX => self.claim_wake_from(ON_FUTEX).then_some(SleepMode::Futex),
            ON_DESCRIPTORS => Some(SleepMode::Descriptors),
            _ => None,
        }
    }

    fn claim_wake_from(&self, asleep: u32) -> bool {
        self.word.compare_exchange(asleep, WOKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns whether the owner sleeps. A hint: the state may change at any time.
    #[inline]
    pub fn is_sleeping(&self) -> bool {
        matches!(self.word.load(Ordering::Relaxed), ON_FUTEX | ON_DESCRIPTORS)
    }

    /// Whether other address spaces can wake the owner. A hint.
    pub(super) fn is_on_futex(&self) -> bool {
        self.word.load(Ordering::Relaxed) == ON_FUTEX
    }

    /// Returns whether the owner polls for work, so that it need not be woken. A hint.
    pub fn is_polling(&self) -> bool {
        matches!(self.word.load(Ordering::Relaxed), POLLING | WOKEN)
    }

    /// Records that the owner checked for posts at `now` (CLOCK_MONOTONIC, nanoseconds).
    pub fn set_last_poll(&self, now: u64) {
        self.last_poll.store(now, Ordering::Relaxed);
    }

    /// Records the kernel thread that carries the owner, by its id in its own pid namespace.
    pub fn set_thread(&self, thread: u32) {
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// Returns the kernel thread that carries the owner, if it is recorded.
    pub fn thread(&self) -> Option<u32> {
        let thread = self.thread.load(Ordering::Relaxed);
        (1..=i32::MAX as u32).contains(&thread).then_some(thread)
    }

    /// Returns the CPU time charged to the owner, in nanoseconds.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn add_used(&self, nanoseconds: u64) {
        self.used.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    pub(crate) fn waits(&self) -> u32 {
        self.waits.load(Ordering::Relaxed)
    }

    pub(crate) fn set_waits(&self, waits: u32) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    /// Resets the cell for another VP.
    pub(crate) fn clear(&self) {
        for word in [&self.word, &self.core, &self.waits, &self.thread] {
            word.store(0, Ordering::Relaxed);
        }
        self.last_poll.store(0, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
    }

    /// Returns when the owner last checked for posts.
    pub fn last_poll(&self) -> u64 {
        self.last_poll.load(Ordering::Relaxed)
    }

    /// Records the core on which the owner goes to sleep.
    pub fn set_core(&self, core: u32) {
        self.core.store(core.wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the core on which the owner last went to sleep, if it is recorded.
    pub fn core(&self) -> Option<u32> {
        self.core.load(Ordering::Relaxed).checked_sub(1)
    }
}

impl Cell {
    /// Sleeps on the cell's futex until woken, for at most `at_most`. Called by the owner. Blocks
    /// the kernel thread; may return early.
    pub fn sleep(&self, at_most: Option<Duration>, reach: Reach) {
        futex::wait(&self.word, ON_FUTEX, at_most, reach == Reach::Private);
    }

    /// Wakes the owner, after [`claim_wake`](Cell::claim_wake) has returned [`SleepMode::Futex`].
    pub fn wake(&self, reach: Reach) {
        futex::wake(&self.word, reach == Reach::Private);
    }
}

/// Processes that can access a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only this address space.
    Private,
    /// All processes that map the board.
    Shared,
}
