//! Telling a virtual processor of another address space that it has to look at its slot.

use crate::slot::VpId;

/// The receiver of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Its place on the board.
    pub place: VpId,
    /// Its process, as the kernel says.
    pub pid: u32,
    /// The kernel thread that carries it, as it says itself; 0 if unknown.
    pub thread: u32,
    /// By what its address space hears, as that says itself: what that means is between them; 0 if
    /// it does not.
    pub listener: u32,
}

/// How a virtual processor hears that it lost its core, or that somebody asks whether it is there.
pub trait CoreNotify: Send + Sync {
    /// Tells it. Must not block, and may be for nothing: it may have ended by now, or be another
    /// one.
    fn notify(&self, receiver: Receiver);
}
