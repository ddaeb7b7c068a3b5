//! Notifications from other address spaces. The VPs look for them themselves, at each step and
//! before they sleep, so that no thread stands between a caller and the server.
//!
//! A sender posts a bit in the row of this address space ([`kumihimo_arbiter::row::Head`]), and
//! rings. The VP that looks next takes all bits and passes them, masked, to the installed
//! [`RemoteWakeHandler`], which wakes microprocesses and does nothing else.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use kumihimo_arbiter::row::Caller;

use crate::kernel_thread::affinity;

/// The handler of notifications from other address spaces.
pub trait RemoteWakeHandler: Sync {
    /// Takes in what the bits say. On a virtual processor that is masked, perhaps on several at
    /// once: it may wake microprocesses and take spin locks of its own, and must neither wait nor
    /// allocate without bound.
    fn take_in(&self, posts: u64);

    /// Rings for all that was put before others and not told yet, see
    /// [`defer_flush`](crate::scheduler::posts::defer_flush). Anywhere: on a virtual processor that
    /// is masked, on the kernel thread that keeps the time.
    fn flush(&self, caller: Caller);

    /// For how many nanoseconds it pays to spin, if at all, because a thread that is awake on
    /// another core than this is likely to notify this address space at once. Called by a VP that
    /// would otherwise sleep.
    fn expects(&self, core: u32) -> Option<u64>;
}

/// Something was put before others, and nobody was told.
static UNFLUSHED: AtomicBool = AtomicBool::new(false);
/// At what level, the highest: a hint.
static UNFLUSHED_LEVEL: AtomicU8 = AtomicU8::new(0);

/// Whether there are links, over which something may come.
pub(crate) fn is_used() -> bool {
    affinity::is_kept()
}

static HANDLER: OnceLock<&'static dyn RemoteWakeHandler> = OnceLock::new();

/// From now on `handler` is told of what comes. False: another one is there, for good.
pub fn install(handler: &'static dyn RemoteWakeHandler) -> bool {
    HANDLER.set(handler).is_ok()
}

/// Rings where that was left for later. Async-signal-safe as far as the handler is.
#[inline]
pub(crate) fn flush(caller: Caller) {
    // A swap, and the links are read after it: a later note finds the flag false, and sets it
    // again.
    if UNFLUSHED.load(Ordering::Relaxed)
        && UNFLUSHED.swap(false, Ordering::AcqRel)
        && let Some(handler) = HANDLER.get()
    {
        UNFLUSHED_LEVEL.store(0, Ordering::Relaxed);
        handler.flush(caller);
    }
}

/// Whether something was put before others by somebody above `level`, and nobody was told.
pub(crate) fn is_unflushed_above(level: u8) -> bool {
    UNFLUSHED_LEVEL.load(Ordering::Relaxed) > level
}

/// The installed handler.
pub(crate) fn handler() -> Option<&'static dyn RemoteWakeHandler> {
    HANDLER.get().copied()
}

/// Something of this level was put before others, and nobody was told.
pub(crate) fn note_unflushed(level: u8) {
    if UNFLUSHED_LEVEL.load(Ordering::Relaxed) < level {
        UNFLUSHED_LEVEL.store(level, Ordering::Relaxed);
    }
    UNFLUSHED.store(true, Ordering::Release);
}
