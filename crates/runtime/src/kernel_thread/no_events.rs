//! Sections in which no event is delivered to the caller, so that its VP is not taken over.
//!
//! A lock of the runtime may be held only inside such a section. Otherwise a page fault while it is
//! held could take the VP away. The returning microprocess would then wait for a VP whose carrier
//! waits for that very lock.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::kernel_thread::gs_record::{self, KernelThread, Standing, standing};

thread_local! {
    /// Number of sections that a kernel thread outside of the runtime is in.
    static FOREIGN: Cell<u32> = const { Cell::new(0) };
}

/// Guard that defers events for the calling microprocess (paper P0, 3.3.2: the event mask). Nests.
/// Costs two writes.
///
/// No call that switches is allowed meanwhile: no park, no wait. A call that blocks the kernel
/// thread in the kernel stalls the whole VP. On a foreign kernel thread the guard does nothing.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::NoEvents;
/// use kumihimo::thread;
/// use std::sync::{Arc, Mutex};
///
/// // A lock of std that is held for a short time. Its holder keeps its virtual processor.
/// let count = Arc::new(Mutex::new(0));
/// let shared = count.clone();
/// let add = thread::spawn(move || {
///     let _events = NoEvents::new();
///     *shared.lock().unwrap() += 1;
/// });
/// add.join().unwrap();
/// assert_eq!(*count.lock().unwrap(), 1);
/// ```
#[derive(Debug)]
pub struct NoEvents {
    masked: bool,
    _not_send: PhantomData<*const ()>,
}

impl NoEvents {
    /// Begins the section.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::{runtime::NoEvents, thread};
    ///
    /// let handle = thread::spawn(|| {
    ///     let events = NoEvents::new();
    ///     let sum: u32 = (1..=10).sum();
    ///     drop(events); // Delivers pending events.
    ///     sum
    /// });
    /// assert_eq!(handle.join().unwrap(), 55);
    /// ```
    #[inline]
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> NoEvents {
        let masked = standing() != Standing::Foreign;
        if masked {
            // SAFETY: not foreign, so GS is set.
            unsafe { KernelThread::begin_guard() }.mask();
        } else {
            FOREIGN.set(FOREIGN.get() + 1);
        }
        NoEvents { masked, _not_send: PhantomData }
    }
}

/// Ends the section and delivers pending events.
impl Drop for NoEvents {
    #[inline]
    fn drop(&mut self) {
        if self.masked {
            // SAFETY: as in `new`; nothing has switched, so the kernel thread is the same.
            unsafe { KernelThread::here() }.unmask();
        } else {
            FOREIGN.set(FOREIGN.get() - 1);
        }
    }
}

/// Whether the caller is in a section without events, in a signal handler of the runtime, or a
/// kernel thread of the runtime between two microprocesses. Waits and wake-ups there are those of
/// the runtime itself.
#[inline]
pub fn is_in_runtime() -> bool {
    match standing() {
        Standing::Foreign => FOREIGN.get() != 0,
        // SAFETY: not foreign, so GS is set.
        _ => unsafe { gs_record::is_masked_here() },
    }
}

/// A held lock of the runtime. The lock is released before events are delivered again.
#[derive(Debug)]
pub struct Locked<'a, T> {
    guard: MutexGuard<'a, T>,
    _quiet: NoEvents,
}

/// Acquires a lock of the runtime, or of a higher crate that holds it as briefly. Blocks the kernel
/// thread until it is available. The holder must not switch.
pub fn lock<T>(mutex: &Mutex<T>) -> Locked<'_, T> {
    let quiet = NoEvents::new();
    Locked { guard: mutex.lock().unwrap_or_else(PoisonError::into_inner), _quiet: quiet }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
