//! Cell of a row: one virtual processor, its sleep, and how other threads wake it.
//!
//! Other processes can write anything on a board. So a cell is only ever compared with what it may
//! say, and a wrong word costs its own VP time: see [`Cell::claim_wake`].

use std::time::Duration;

use crate::loom::{AtomicU32, AtomicU64, Ordering, fence, futex};

/// Running microprocesses; checks for work at its next step.
const RUNNING: u32 = 0;
/// Idle, and polling for work.
const POLLING: u32 = 1;
/// Asleep on its word (futex), or about to be.
const ON_FUTEX: u32 = 2;
/// Asleep on descriptors (poll), or about to be.
const ON_DESCRIPTORS: u32 = 3;
/// A waker claimed its wake-up; it has not yet returned from sleep.
const WOKEN: u32 = 4;

/// What a sleeping VP waits on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepMode {
    /// On the word of its cell: [`Cell::wake`] gets it up.
    Futex,
    /// Where only its own address space can wake it: a descriptor that it waits for.
    Descriptors,
}

/// A virtual processor's place in its row. All zero: it runs.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Cell {
    word: AtomicU32,
    /// The core that its VP ran on when it went to sleep, plus one.
    core: AtomicU32,
    /// When it last looked at what others put before it, CLOCK_MONOTONIC nanoseconds.
    last_poll: AtomicU64,
    /// The core that it waits for and its level's mark ([`crate::slot`]); 0: none.
    waits: AtomicU32,
    /// The kernel thread that carries it, 0 if unknown.
    thread: AtomicU32,
    /// CPU time that it used, nanoseconds.
    used: AtomicU64,
}

impl Default for Cell {
    fn default() -> Cell {
        Cell::new()
    }
}

impl Cell {
    /// Of a VP that runs.
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

    /// Marks the owner idle and polling, until it sleeps or [runs](Cell::set_running).
    pub fn set_polling(&self) {
        self.word.store(POLLING, Ordering::Relaxed);
    }

    /// Marks the owner running, from a state in which no thread wakes it.
    pub fn set_running(&self) {
        self.word.store(RUNNING, Ordering::Relaxed);
    }

    /// Announces that the owner is about to sleep. It must check for work once more after this.
    pub fn prepare_sleep(&self, mode: SleepMode) {
        self.word.store(
            if mode == SleepMode::Futex { ON_FUTEX } else { ON_DESCRIPTORS },
            Ordering::Relaxed,
        );
        fence(Ordering::SeqCst);
    }

    /// Marks the owner running after a sleep. True if a waker claimed its wake-up.
    pub fn finish_sleep(&self) -> bool {
        self.word.swap(RUNNING, Ordering::Acquire) == WOKEN
    }

    /// By its own address space, after something was put where the VP looks: how the caller has to
    /// wake it, if it has to.
    ///
    /// A stray write over the cell can lose a wake-up: the VP checks again on its own when
    /// its nap is over, and is then none the worse.
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

    /// By another address space: [`SleepMode::Futex`], which the caller has to [wake](Cell::wake);
    /// or [`SleepMode::Descriptors`], and nothing is changed: only a thread that can wake it may
    /// call it, or no call would reach it any more.
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

    /// A hint: it may be otherwise by now.
    #[inline]
    pub fn is_sleeping(&self) -> bool {
        matches!(self.word.load(Ordering::Relaxed), ON_FUTEX | ON_DESCRIPTORS)
    }

    /// Whether others than its own address space can wake it. A hint.
    pub(super) fn is_on_futex(&self) -> bool {
        self.word.load(Ordering::Relaxed) == ON_FUTEX
    }

    /// Whether it looks for something to do, so that it need not be called. A hint.
    pub fn is_polling(&self) -> bool {
        matches!(self.word.load(Ordering::Relaxed), POLLING | WOKEN)
    }

    /// The owner looked, at this time (CLOCK_MONOTONIC, nanoseconds).
    pub fn set_last_poll(&self, now: u64) {
        self.last_poll.store(now, Ordering::Relaxed);
    }

    /// This kernel thread (its id in its own process) carries the owner now.
    pub fn set_thread(&self, thread: u32) {
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// The kernel thread that carries the owner, if it said so.
    pub fn thread(&self) -> Option<u32> {
        let thread = self.thread.load(Ordering::Relaxed);
        (1..=i32::MAX as u32).contains(&thread).then_some(thread)
    }

    /// CPU time that the owner booked, nanoseconds.
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

    /// Another VP's from now on.
    pub(crate) fn clear(&self) {
        for word in [&self.word, &self.core, &self.waits, &self.thread] {
            word.store(0, Ordering::Relaxed);
        }
        self.last_poll.store(0, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
    }

    /// When the owner last looked.
    pub fn last_poll(&self) -> u64 {
        self.last_poll.load(Ordering::Relaxed)
    }

    /// Notes the core on which the owner goes to sleep.
    pub fn set_core(&self, core: u32) {
        self.core.store(core.wrapping_add(1), Ordering::Relaxed);
    }

    /// The core on which the owner last went to sleep, if noted.
    pub fn core(&self) -> Option<u32> {
        self.core.load(Ordering::Relaxed).checked_sub(1)
    }
}

impl Cell {
    /// The owner, asleep on its word, sleeps until it is woken, or so long. May return early.
    pub fn sleep(&self, at_most: Option<Duration>, reach: Reach) {
        futex::wait(&self.word, ON_FUTEX, at_most, reach == Reach::Private);
    }

    /// Wakes the owner, which [`claim_wake`](Cell::claim_wake) found asleep on its word.
    pub fn wake(&self, reach: Reach) {
        futex::wake(&self.word, reach == Reach::Private);
    }
}

/// The processes that can reach a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This address space only.
    Private,
    /// All that map its board.
    Shared,
}
