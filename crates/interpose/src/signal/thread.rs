//! What this library keeps of the signals and of the cancellation of one thread.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use kumihimo_runtime::park::Waiter;

use crate::signal::queue::Queue;
use crate::signal::set::bit;

/// The signals of a thread, in its [record](crate::thread::record::Record).
pub(crate) struct Signals {
    /// Number of nested sections in which no handler runs.
    pub(super) depth: Cell<u32>,
    pub(super) queue: Queue,
    /// The thread's mask. That of a kernel thread is the kernel's.
    pub(super) mask: AtomicU64,
    /// What the thread waits for in sigwait(3), on the kernel thread `waits_on`.
    pub(super) waits_for: AtomicU64,
    pub(super) waits_on: AtomicU32,
    /// Whether the caller of the handler that runs, if one does, handles what comes until its end.
    pub(super) is_handling: Cell<bool>,
    /// Number of handlers that have run, and of those without SA_RESTART.
    pub(super) handled: Cell<u64>,
    pub(super) interrupting: Cell<u64>,
    /// Set before [`has_waiter`](Signals::has_waiter), and not changed after that.
    /// Not dropped: the end of a thread may come after its thread-local variables were dropped.
    waiter: UnsafeCell<MaybeUninit<Waiter>>,
    pub(super) has_waiter: AtomicBool,
    /// Whether the thread is a microprocess that runs.
    pub(super) is_alive: AtomicBool,
    pub(crate) cancel: Cancel,
}

impl Signals {
    pub(crate) const fn new() -> Signals {
        Signals {
            depth: Cell::new(0),
            queue: Queue::new(),
            mask: AtomicU64::new(0),
            waits_for: AtomicU64::new(0),
            waits_on: AtomicU32::new(0),
            is_handling: Cell::new(false),
            handled: Cell::new(0),
            interrupting: Cell::new(0),
            waiter: UnsafeCell::new(MaybeUninit::uninit()),
            has_waiter: AtomicBool::new(false),
            is_alive: AtomicBool::new(false),
            cancel: Cancel::new(),
        }
    }

    /// The caller, so that others can wake it.
    pub(super) fn waiter(&self) -> Option<&Waiter> {
        if !self.has_waiter.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: set before the flag, and not changed while the thread lives.
        Some(unsafe { (*self.waiter.get()).assume_init_ref() })
    }

    /// Notes how to wake the calling thread.
    pub(crate) fn note_waiter(&self) {
        if !self.has_waiter.load(Ordering::Relaxed) {
            // SAFETY: nobody reads it before the flag is set.
            unsafe { (*self.waiter.get()).write(kumihimo_runtime::park::current()) };
            self.has_waiter.store(true, Ordering::Release);
        }
    }

    /// The mask of the creator, before the thread begins.
    pub(crate) fn inherit_mask(&self, mask: u64) {
        self.mask.store(mask, Ordering::SeqCst);
    }

    /// Whether the thread has begun and ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_waiter.load(Ordering::SeqCst) && !self.is_alive()
    }

    /// Whether `signal` is open.
    pub(super) fn is_open(&self, signal: c_int) -> bool {
        self.mask.load(Ordering::SeqCst) & bit(signal) == 0
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::SeqCst)
    }

    pub(crate) fn is_in_section(&self) -> bool {
        self.depth.get() != 0
    }
}

/// The cancellation of a thread.
pub(crate) struct Cancel {
    /// Requested, and not acted upon.
    pub(crate) is_requested: AtomicBool,
    pub(crate) is_disabled: Cell<bool>,
    pub(crate) is_asynchronous: AtomicBool,
}

impl Cancel {
    const fn new() -> Cancel {
        Cancel {
            is_requested: AtomicBool::new(false),
            is_disabled: Cell::new(false),
            is_asynchronous: AtomicBool::new(false),
        }
    }

    /// Whether the next cancellation point of the caller ends it.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.is_requested.load(Ordering::SeqCst) && !self.is_disabled.get()
    }

    /// Whether a cancellation takes effect anywhere, and not at cancellation points only.
    pub(crate) fn is_asynchronous(&self) -> bool {
        self.is_asynchronous.load(Ordering::SeqCst)
    }

    /// Runs `f`, which no cancellation ends.
    pub(crate) fn deferred<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = self.is_disabled.replace(true);
        let done = f();
        self.is_disabled.set(before);
        done
    }

    /// The thread ends: no wait of its handlers is interrupted.
    pub(crate) fn is_over(&self) {
        self.is_requested.store(false, Ordering::SeqCst);
    }
}
