//! Notification of a virtual processor of another address space: it has to check its slot.

use crate::slot::VpId;

/// The receiver of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Its place on the board.
    pub place: VpId,
    /// Its process, from the kernel.
    pub pid: u32,
    /// The kernel thread that carries it, as its address space wrote it; 0 if unknown.
    pub thread: u32,
    /// Where its address space receives notifications; its meaning is private to the address
    /// spaces. 0: nowhere.
    pub listener: u32,
}

/// Notifies a virtual processor that it lost its core, or that a waiter asks for an answer.
pub trait CoreNotify: Send + Sync {
    /// Notifies the receiver. Must not block. Spurious calls are allowed: the receiver may have
    /// ended, or another one taken its place.
    fn notify(&self, receiver: Receiver);
}
