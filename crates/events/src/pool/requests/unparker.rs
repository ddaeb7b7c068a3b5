//! Request of a kernel thread for a parked VP.

use std::sync::Arc;

use crate::pool::kernel::Kernel;

/// Gives a VP a kernel thread when it is parked
/// ([`KernelThread::park_vp`](crate::KernelThread::park_vp)).
#[derive(Debug)]
pub struct Unparker {
    kernel: Arc<Kernel>,
    vp: u32,
}

impl Unparker {
    /// Creates the unparker of VP number `vp`.
    #[must_use]
    pub fn new(kernel: Arc<Kernel>, vp: usize) -> Unparker {
        Unparker { kernel, vp: vp as u32 }
    }

    /// Whether the VP is parked: it has no kernel thread. Any thread may call this.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.kernel.is_parked(self.vp)
    }

    /// Requests a kernel thread if the VP is parked. The caller has stored work for the VP and
    /// passed a full fence. Async-signal-safe.
    #[inline]
    pub fn unpark(&self) {
        self.kernel.unpark(self.vp);
    }
}
