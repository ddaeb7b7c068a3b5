//! Events and thread states: the values of a slot's `pending` and `state` (P0, figure 5).

/// The events that the kernel's half reports to the user scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The microprocess of a kernel thread sleeps in the kernel.
    Blocked,
    /// The microprocess is back and about to run in user mode.
    Unblocked,
    /// A microprocess of higher priority became runnable.
    Preempted,
    /// A kernel thread without a microprocess begins to carry a virtual processor.
    Resumed,
    /// Another thread changed the priority of the running microprocess.
    Changed,
}

impl Event {
    /// Returns the event's bit in [`crate::Slot::pending`].
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The states of a kernel thread (P0, figure 5). [`crate::Slot::state`] holds one of them, with
/// [`BOUND`] if a microprocess is bound to the kernel thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ThreadState {
    /// State 5: the thread has ended, and its slot is free.
    Ended = 0,
    /// State 1: the thread runs a microprocess or the user scheduler, in user mode.
    User = 1,
    /// State 2: the thread runs in the kernel's half.
    Kernel = 2,
    /// State 3: the thread was called or woken, and waits for a core.
    Runnable = 3,
    /// State 4: the thread sleeps, in the pool or (bound) with a blocked microprocess.
    Sleeping = 4,
}

/// In [`crate::Slot::state`] beside a [`ThreadState`]: a microprocess is bound to the kernel
/// thread.
pub const BOUND: u32 = 1 << 8;

impl ThreadState {
    /// Decodes a slot's state word: the thread state, and whether a microprocess is bound. Returns
    /// `None` for a word that is not a state.
    #[must_use]
    pub const fn read(word: u32) -> Option<(ThreadState, bool)> {
        let state = match word & !BOUND {
            0 => ThreadState::Ended,
            1 => ThreadState::User,
            2 => ThreadState::Kernel,
            3 => ThreadState::Runnable,
            4 => ThreadState::Sleeping,
            _ => return None,
        };
        Some((state, word & BOUND != 0))
    }
}

/// The state word of a kernel thread that sleeps with its microprocess.
pub(crate) const AWAY: u32 = ThreadState::Sleeping as u32 | BOUND;
