//! Row: the cells of one address space's VPs. A VP sleeps in its cell, where any thread of its
//! address space can wake it. If the row is on a board, threads of other address spaces can too.
//!
//! The protocol loses no wake-up; `row/tests/loom.rs` models it. The sleeper stores that it sleeps,
//! and then checks once more every place to which other threads post. The waker posts, and then
//! loads whether the VP sleeps. Both loads follow a full fence, so at least one of the two observes
//! the other.

mod cell;
#[cfg(test)]
mod tests;

pub use cell::{Cell, Reach, SleepMode};

use crate::loom::{AtomicU64, Ordering, fence};

/// Posts from outside to an address space's VPs: a set of 64 bits.
///
/// A bit tells where to check and nothing more. It may be set without need, and a stray write can
/// clear it; the owner then finds the post at its next full check.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Head {
    posted: AtomicU64,
}

impl Default for Head {
    fn default() -> Head {
        Head::new()
    }
}

impl Head {
    /// Creates a head without posts.
    #[must_use]
    pub fn new() -> Head {
        Head { posted: AtomicU64::new(0) }
    }

    /// Sets `bit`, after the caller has stored what the bit announces. The caller then
    /// [wakes](Cell::claim_wake) a VP, unless one is about to check.
    #[inline]
    pub fn post(&self, bit: u32) {
        let bit = 1 << (bit & 63);
        // A sender that finds the bit already set has stored its data before the owner takes the
        // bit. The fence orders the store before the load; the owner's swap and fence precede its
        // check.
        fence(Ordering::SeqCst);
        if self.posted.load(Ordering::Relaxed) & bit == 0 {
            self.posted.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// Returns whether any bit is set. A hint, unless a fence precedes the call.
    #[inline(always)]
    pub fn has_posts(&self) -> bool {
        self.posted.load(Ordering::Relaxed) != 0
    }

    /// Takes all posts. The caller then checks every place that the bits announce.
    #[inline]
    pub fn take_posts(&self) -> u64 {
        let posts = self.posted.swap(0, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        posts
    }
}

/// Row of this address space or of another one.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Posts to the row.
    pub head: &'static Head,
    /// One cell per VP.
    pub cells: &'static [Cell],
    /// Processes that can access the row.
    pub reach: Reach,
}

/// Result of notifying an address space of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingOutcome {
    /// A VP of the address space is checking for work, or will at its next step.
    Awake,
    /// A sleeping VP was woken.
    Woken,
    /// All VPs run, and none has checked recently: only their own address space can interrupt one.
    Busy,
    /// A VP sleeps on descriptors, where only its own address space can wake it, so it must be
    /// notified in another way.
    Unreachable,
}

/// State of the thread that calls [`Row::ring`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// About to wait on this core.
    Waits(u32),
    /// Continues to run on this core.
    Continues(u32),
    /// Runs on an unknown core.
    Anywhere,
}

impl Caller {
    fn prefers(self, cell: &Cell) -> bool {
        match self {
            Caller::Waits(core) => cell.core() == Some(core),
            Caller::Continues(core) => cell.core().is_some_and(|asleep| asleep != core),
            Caller::Anywhere => false,
        }
    }
}

/// A VP that has checked within this many nanoseconds switches often, and so checks again soon.
const SOON: u64 = 200_000;

impl Row {
    /// Creates the row of an address space that other processes cannot access. Never freed.
    #[must_use]
    pub fn private(vps: usize) -> Row {
        let cells: Vec<Cell> = (0..vps).map(|_| Cell::new()).collect();
        Row { head: Box::leak(Box::default()), cells: cells.leak(), reach: Reach::Private }
    }

    /// Makes a VP of this row check for work after a [post](Head::post). Called by another address
    /// space.
    ///
    /// Wakes no VP if an awake one will check. If the caller is about to wait, prefers a VP that
    /// went to sleep on the caller's core: the kernel then switches to it without waking another
    /// core. If the caller continues to run, prefers a VP that went to sleep on another core.
    pub fn ring(&self, caller: Caller, now: impl FnOnce() -> u64) -> RingOutcome {
        let now = std::cell::LazyCell::new(now);
        let mut asleep: Option<&Cell> = None;
        fence(Ordering::SeqCst);
        for cell in self.cells {
            if cell.is_sleeping() {
                let worth = |cell: &Cell| (cell.is_on_futex(), caller.prefers(cell));
                if asleep.is_none_or(|best| worth(cell) > worth(best)) {
                    asleep = Some(cell);
                }
            } else if cell.is_polling()
                || cell.last_poll() != 0 && now.saturating_sub(cell.last_poll()) < SOON
            {
                return RingOutcome::Awake;
            }
        }
        match asleep.map(|cell| (cell, cell.claim_wake_remote())) {
            None => RingOutcome::Busy,
            Some((_, None)) => RingOutcome::Awake,
            Some((cell, Some(SleepMode::Futex))) => {
                cell.wake(self.reach);
                RingOutcome::Woken
            }
            Some((_, Some(SleepMode::Descriptors))) => RingOutcome::Unreachable,
        }
    }
}
