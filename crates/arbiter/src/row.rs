//! Row: the cells of one address space's virtual processors. In its cell a VP sleeps, and any
//! thread wakes it there: threads of its own address space, and, where the row is on a board, of
//! others.
//!
//! The protocol against lost wake-ups, modelled in `row/tests/loom.rs`: the sleeper writes that it
//! sleeps, then looks once more at everything that others may have filled; the waker fills, then
//! reads whether the VP sleeps. Both read after a full fence, so one of them sees the other.

mod cell;
#[cfg(test)]
mod tests;

pub use cell::{Cell, Reach, SleepMode};

use crate::loom::{AtomicU64, Ordering, fence};

/// What all of an address space's virtual processors have in common: what was put before them from
/// outside, 64 kinds of it.
///
/// A bit says where to look and nothing more. It may be set for nothing, and a stray write
/// can clear it: then its owner finds what is there when it next looks at everything.
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
    /// With nothing posted.
    #[must_use]
    pub fn new() -> Head {
        Head { posted: AtomicU64::new(0) }
    }

    /// Something was put where `bit` says, before this. Then somebody has to be
    /// [called](Cell::claim_wake), or to look.
    #[inline]
    pub fn post(&self, bit: u32) {
        let bit = 1 << (bit & 63);
        // A sender that sees it set from before has put its own there before the owner took the
        // bit: the fence orders that against the load, and the owner's swap comes, with another
        // one, before it looks.
        fence(Ordering::SeqCst);
        if self.posted.load(Ordering::Relaxed) & bit == 0 {
            self.posted.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// Whether anything is posted. A hint, unless a fence comes before it.
    #[inline(always)]
    pub fn has_posts(&self) -> bool {
        self.posted.load(Ordering::Relaxed) != 0
    }

    /// Takes what is posted: the caller looks everywhere that it says, after this.
    #[inline]
    pub fn take_posts(&self) -> u64 {
        let posts = self.posted.swap(0, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        posts
    }
}

/// The row of an address space: its own, or another's.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What is posted.
    pub head: &'static Head,
    /// A cell a virtual processor.
    pub cells: &'static [Cell],
    /// The others that see it.
    pub reach: Reach,
}

/// How an address space learns that something was posted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingOutcome {
    /// Somebody there looks already, or will at its next step.
    Awake,
    /// A virtual processor was woken.
    Woken,
    /// All run, and none has looked lately: only their own address space can interrupt one of them.
    Busy,
    /// One sleeps where only its own address space can wake it, and has to be told another way.
    Unreachable,
}

/// The ringing thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// It is about to wait, on this core.
    Waits(u32),
    /// It goes on, on this core.
    Continues(u32),
    /// It does not know where it runs.
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

/// One that has looked within so many nanoseconds looks again soon: it switches.
const SOON: u64 = 200_000;

impl Row {
    /// Of an address space that nobody else sees. Kept for good.
    #[must_use]
    pub fn private(vps: usize) -> Row {
        let cells: Vec<Cell> = (0..vps).map(|_| Cell::new()).collect();
        Row { head: Box::leak(Box::default()), cells: cells.leak(), reach: Reach::Private }
    }

    /// After a [post](Head::post): sees to it that a virtual processor of this row looks.
    ///
    /// By another address space. Never wakes a second one while one is up that will look. Of
    /// several that lie, wakes the one that lay down on the caller's core if the caller is about to
    /// wait: the kernel goes over to it then, without waking another core. Else rather another one.
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
