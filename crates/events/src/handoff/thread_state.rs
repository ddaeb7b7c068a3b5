//! Events and thread states: the values of a slot's `pending` and `state` (P0, figure 5).

/// What the kernel's half tells the user scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The microprocess of a kernel thread sleeps in the kernel.
    Blocked,
    /// It is back, and about to run in user mode.
    Unblocked,
    /// Something of higher priority became runnable.
    Preempted,
    /// A kernel thread without a microprocess has come to carry a virtual processor.
    Resumed,
    /// The priority of what runs here was changed from outside.
    Changed,
}

impl Event {
    /// Its bit in [`crate::Slot::pending`].
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The states of a kernel thread (P0, figure 5), in [`crate::Slot::state`]; with [`BOUND`] where a
/// microprocess is bound to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ThreadState {
    /// 5: it has ended; its slot is free.
    Ended = 0,
    /// 1: it runs in user mode: a microprocess, or the user scheduler.
    User = 1,
    /// 2: it runs in the kernel's half.
    Kernel = 2,
    /// 3: it was called, or woken, and waits for a core.
    Runnable = 3,
    /// 4: it sleeps: in the pool, or (bound) with a microprocess that is blocked.
    Sleeping = 4,
}

/// In [`crate::Slot::state`] beside a [`ThreadState`]: a microprocess is bound to the kernel
/// thread.
pub const BOUND: u32 = 1 << 8;

impl ThreadState {
    /// What stands in a slot: the state, and whether a microprocess is bound. `None` if nobody
    /// wrote that.
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

/// In a slot's state: blocked, with its microprocess.
pub(crate) const AWAY: u32 = ThreadState::Sleeping as u32 | BOUND;
