//! Request of a kernel thread for a parked VP.

use std::sync::Arc;

use kumihimo_events::Kernel;

/// Gives a VP a kernel thread when it is parked ([`crate::scheduler::parking`]).
#[derive(Debug)]
pub(crate) struct Unparker {
    kernel: Arc<Kernel>,
    vp: u32,
}

impl Unparker {
    /// Creates the unparker of VP number `vp`.
    pub(crate) fn new(kernel: Arc<Kernel>, vp: usize) -> Unparker {
        Unparker { kernel, vp: vp as u32 }
    }

    /// Whether the VP is parked: it has no kernel thread. Any thread may call this.
    pub(crate) fn is_parked(&self) -> bool {
        self.kernel.is_parked(self.vp)
    }

    /// Requests a kernel thread if the VP is parked. The caller has stored work for the VP and
    /// passed a full fence. Async-signal-safe.
    #[inline]
    pub(crate) fn unpark(&self) {
        self.kernel.unpark(self.vp);
    }
}
