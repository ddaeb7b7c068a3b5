//! Notification of a VP of another address space, which then checks its slot.

use crate::slot::VpId;

/// VP that receives a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Place of the VP on the board.
    pub place: VpId,
    /// Pid of its process, from the kernel.
    pub pid: u32,
    /// Kernel thread that carries the VP, as its address space wrote it; 0 if unknown.
    pub thread: u32,
    /// Where its address space receives notifications; 0 if nowhere. Only the address spaces
    /// interpret the value.
    pub listener: u32,
}

/// Notifies a VP that it lost its core, or that a waiter requests an acknowledgement.
pub trait CoreNotify: Send + Sync {
    /// Notifies the receiver. Must not block. Spurious calls are allowed: the receiver may have
    /// ended, or another VP may have taken its place.
    fn notify(&self, receiver: Receiver);
}
