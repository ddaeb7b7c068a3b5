//! Notifications from other address spaces. The VPs check for them, at each scheduling step and
//! before they sleep, so that no thread stands between a client and the server.
//!
//! A sender posts a bit in the row of this address space ([`kumihimo_arbiter::row::Head`]) and
//! wakes a VP. The next VP that checks takes all bits and passes them, masked, to the installed
//! [`RemoteWakeHandler`], which only wakes microprocesses.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use kumihimo_arbiter::row::Caller;

use crate::kernel_thread::affinity;

/// Handler of notifications from and to other address spaces.
pub trait RemoteWakeHandler: Sync {
    /// Handles the posted bits. Called on a masked VP, perhaps on several at once. It may wake
    /// microprocesses and take its own spin locks, and must neither wait nor allocate without
    /// bound.
    fn take_in(&self, posts: u64);

    /// Notifies the other address spaces of all pending messages, see
    /// [`defer_flush`](crate::scheduler::posts::defer_flush). Called on a masked VP or on the
    /// timekeeper's kernel thread.
    fn flush(&self, caller: Caller);

    /// Returns for how many nanoseconds spinning is worth while, or `None`. It is worth while if a
    /// thread that is awake on a core other than `core` is likely to notify this address space
    /// soon. Called by a VP that would otherwise sleep.
    fn expects(&self, core: u32) -> Option<u64>;
}

/// Whether messages to other address spaces are pending without a notification.
static UNFLUSHED: AtomicBool = AtomicBool::new(false);
/// The highest level of these. A hint.
static UNFLUSHED_LEVEL: AtomicU8 = AtomicU8::new(0);

/// Whether links to other address spaces exist.
pub(crate) fn is_used() -> bool {
    affinity::is_kept()
}

static HANDLER: OnceLock<&'static dyn RemoteWakeHandler> = OnceLock::new();

/// Installs `handler`. Returns false if another handler is installed already, which stays.
pub fn install(handler: &'static dyn RemoteWakeHandler) -> bool {
    HANDLER.set(handler).is_ok()
}

/// Sends deferred notifications. Async-signal-safe if the handler is.
#[inline]
pub(crate) fn flush(caller: Caller) {
    // The flag is swapped before the handler reads the links: a later note finds it false and sets
    // it again.
    if UNFLUSHED.load(Ordering::Relaxed)
        && UNFLUSHED.swap(false, Ordering::AcqRel)
        && let Some(handler) = HANDLER.get()
    {
        UNFLUSHED_LEVEL.store(0, Ordering::Relaxed);
        handler.flush(caller);
    }
}

/// Whether notifications are pending for a message from a level above `level`.
pub(crate) fn is_unflushed_above(level: u8) -> bool {
    UNFLUSHED_LEVEL.load(Ordering::Relaxed) > level
}

/// Returns the installed handler.
pub(crate) fn handler() -> Option<&'static dyn RemoteWakeHandler> {
    HANDLER.get().copied()
}

/// Records that a message from `level` is pending without a notification.
pub(crate) fn note_unflushed(level: u8) {
    if UNFLUSHED_LEVEL.load(Ordering::Relaxed) < level {
        UNFLUSHED_LEVEL.store(level, Ordering::Relaxed);
    }
    UNFLUSHED.store(true, Ordering::Release);
}
