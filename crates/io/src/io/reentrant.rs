//! A reentrant lock, as std's standard streams have.

use std::cell::{RefCell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use kumihimo_runtime::thread;
use kumihimo_sync::{Mutex, MutexGuard, PoisonError};

const NOBODY: u64 = 0;

pub(super) struct Reentrant<T: 'static> {
    /// The holder's id. Only the holder ever finds its own id here: Relaxed.
    holder: AtomicU64,
    lock: Mutex<()>,
    /// The holder's.
    held: UnsafeCell<Held>,
    value: RefCell<T>,
}

struct Held {
    depth: usize,
    guard: Option<MutexGuard<'static, ()>>,
}

// SAFETY: `held` and `value` are used by the holder only, and `lock` makes that one thread at a
// time.
unsafe impl<T: Send> Sync for Reentrant<T> {}
// SAFETY: as above; a guard is in it only while it is borrowed.
unsafe impl<T: Send> Send for Reentrant<T> {}

/// Stays with the thread that it was given to.
pub(super) struct ReentrantGuard<T: 'static> {
    lock: &'static Reentrant<T>,
    not_send: PhantomData<*const ()>,
}

impl<T> Reentrant<T> {
    pub(super) fn new(value: T) -> Reentrant<T> {
        Reentrant {
            holder: AtomicU64::new(NOBODY),
            lock: Mutex::new(()),
            held: UnsafeCell::new(Held { depth: 0, guard: None }),
            value: RefCell::new(value),
        }
    }

    /// Blocks the microprocess. A panic of a holder changes nothing.
    pub(super) fn lock(&'static self) -> ReentrantGuard<T> {
        let me = thread::current().id().as_u64().get();
        if self.holder.load(Ordering::Relaxed) != me {
            let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.take(me, guard);
        }
        self.enter()
    }

    /// For callers that cannot wait: none if it is held, by the caller included.
    pub(super) fn try_lock(&'static self) -> Option<ReentrantGuard<T>> {
        let guard = self.lock.try_lock().ok()?;
        self.take(thread::current().id().as_u64().get(), guard);
        Some(self.enter())
    }

    fn take(&self, me: u64, guard: MutexGuard<'static, ()>) {
        self.holder.store(me, Ordering::Relaxed);
        // SAFETY: locked just now.
        unsafe { (*self.held.get()).guard = Some(guard) };
    }

    fn enter(&'static self) -> ReentrantGuard<T> {
        // SAFETY: the caller is the holder.
        unsafe { (*self.held.get()).depth += 1 };
        ReentrantGuard { lock: self, not_send: PhantomData }
    }
}

impl<T> Deref for ReentrantGuard<T> {
    type Target = RefCell<T>;
    fn deref(&self) -> &RefCell<T> {
        &self.lock.value
    }
}

impl<T> Drop for ReentrantGuard<T> {
    fn drop(&mut self) {
        // SAFETY: guards stay with the holder.
        let held = unsafe { &mut *self.lock.held.get() };
        held.depth -= 1;
        if held.depth == 0 {
            self.lock.holder.store(NOBODY, Ordering::Relaxed);
            let guard = held.guard.take();
            drop(guard);
        }
    }
}
