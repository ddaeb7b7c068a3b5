//! Atomics, locks, park and wake of loom's threads, and a clock with one deadline.

pub(crate) use ::loom::cell::UnsafeCell;
pub(crate) use ::loom::sync::Mutex;
pub(crate) use ::loom::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use ::loom::sync::{Arc, Condvar, MutexGuard};
use std::time::Instant;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// As the real one. loom does not model that order between a store and a concurrent
/// read-modify-write.
pub(crate) fn store_release(word: &AtomicU32, value: u32) {
    word.swap(value, Ordering::AcqRel);
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    #[allow(dead_code, reason = "for reports of the real one")]
    Gate(u16),
}

#[derive(Debug)]
struct Parker {
    /// std's, which is no step of a model: the wake-up that follows is one.
    is_cancelled: std::sync::atomic::AtomicBool,
    permit: Mutex<bool>,
    woken: Condvar,
}

#[derive(Clone, Debug)]
pub(crate) struct Waiter(Arc<Parker>);

impl PartialEq for Waiter {
    fn eq(&self, other: &Waiter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Waiter {
    pub(crate) fn wake(&self) {
        *self.0.permit.lock().unwrap() = true;
        self.0.woken.notify_one();
    }
}

::loom::thread_local! {
    static ME: Waiter =
        Waiter(Arc::new(Parker {
            is_cancelled: false.into(),
            permit: Mutex::new(false),
            woken: Condvar::new(),
        }));
}

::loom::lazy_static! {
    /// Whether the one deadline has passed.
    static ref HAS_PASSED: AtomicBool = AtomicBool::new(false);
}

pub(crate) fn current() -> Waiter {
    ME.with(Clone::clone)
}

/// Waits for a permit. The timer of a deadline leaves one, too: see [`pass`].
pub(crate) fn park(_why: Wait, _deadline: Option<Instant>) {
    ME.with(|me| {
        let mut permit = me.0.permit.lock().unwrap();
        while !*permit {
            permit = me.0.woken.wait(permit).unwrap();
        }
        *permit = false;
    });
}

/// Whether the deadline has passed: at any time, if a thread lets it [`pass`].
pub(crate) fn has_passed(deadline: Option<Instant>) -> bool {
    deadline.is_some() && HAS_PASSED.load(Ordering::Acquire)
}

/// The deadline passes, and the timer of the thread that waits with it fires.
pub(crate) fn pass(timer: &Waiter) {
    HAS_PASSED.store(true, Ordering::Release);
    timer.wake();
}

pub(crate) mod cancel {
    use super::{ME, Ordering, Waiter};

    pub(crate) fn would_unwind() -> bool {
        ME.with(|me| me.0.is_cancelled.load(Ordering::Acquire))
    }

    /// Cancels a thread: the mark first, then a permit.
    pub(crate) fn cancel(whom: &Waiter) {
        whom.0.is_cancelled.store(true, Ordering::Release);
        whom.wake();
    }
}

pub(crate) mod remote_wake {
    use std::cell::Cell;

    ::loom::thread_local! {
        /// Whether the thread's VP flushes later.
        static DEFERS: Cell<bool> = Cell::new(false);
    }

    /// Lets the calling thread defer its flushes.
    pub(crate) fn set_defers() {
        DEFERS.with(|defers| defers.set(true));
    }

    pub(crate) fn defer_flush() -> bool {
        DEFERS.with(Cell::get)
    }

    pub(crate) fn core() -> Option<u32> {
        None
    }

    pub(crate) fn monotonic() -> u64 {
        0
    }
}
