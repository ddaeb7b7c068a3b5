//! A cell that is written once.

use crate::init::once::Once;
use crate::loom::const_fn;
use crate::wait::deadline;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

/// A cell that can be written once, then read by all; the API is [`std::sync::OnceLock`]'s,
/// with [`wait_timeout`](OnceLock::wait_timeout) and [`wait_until`](OnceLock::wait_until) added.
///
/// `get_or_init` and `set` *block* (the microprocess, or the kernel thread) while another
/// initialises; `wait` until somebody has. Not a cancellation point. Writing *happens before* every
/// read.
///
/// ```
/// use kumihimo_sync::OnceLock;
/// static PORT: OnceLock<u16> = OnceLock::new();
/// assert_eq!(PORT.get(), None);
/// assert_eq!(*PORT.get_or_init(|| 80), 80);
/// assert_eq!(PORT.set(81), Err(81));
/// ```
pub struct OnceLock<T> {
    once: Once,
    /// Written before `once` is complete.
    value: UnsafeCell<MaybeUninit<T>>,
    owns: PhantomData<T>,
}

// SAFETY: shared readers get `&T`; the writer may be another thread than the one that drops, so
// `T: Send` too.
unsafe impl<T: Sync + Send> Sync for OnceLock<T> {}
// SAFETY: owning the cell is owning the value.
unsafe impl<T: Send> Send for OnceLock<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    const_fn! {
        /// An empty cell.
        #[inline]
        pub fn new() -> OnceLock<T> {
            OnceLock { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()), owns: PhantomData }
        }
    }

    /// The value, if it was written. Never blocks.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: complete, so written, and never written again while borrowed.
        self.once.is_completed().then(|| unsafe { self.get_unchecked() })
    }

    /// The value, if it was written.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: complete, so written; borrowed exclusively.
        self.once.is_completed().then(|| unsafe { (*self.value.get()).assume_init_mut() })
    }

    /// The value; waits until it is written.
    pub fn wait(&self) -> &T {
        self.once.wait_force();
        // SAFETY: the wait ends when it is written.
        unsafe { self.get_unchecked() }
    }

    /// As [`wait`](OnceLock::wait), but gives up after `timeout`: None.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<&T> {
        self.wait_limited(deadline::after(timeout))
    }

    /// As [`wait`](OnceLock::wait), but gives up at `deadline`: None.
    pub fn wait_until(&self, deadline: Instant) -> Option<&T> {
        self.wait_limited(Some(deadline))
    }

    fn wait_limited(&self, deadline: Option<Instant>) -> Option<&T> {
        // SAFETY: true once it is written.
        self.once.wait_limited(true, deadline).then(|| unsafe { self.get_unchecked() })
    }

    /// Writes the value; waits for an initialisation that is running.
    ///
    /// # Errors
    /// The value comes back if one was written already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        match value {
            None => Ok(()),
            Some(value) => Err(value),
        }
    }

    /// The value; written by `f` if it was not yet.
    ///
    /// # Panics
    /// If `f` panics, with the cell empty as before; and if `f` asks for the value of the same
    /// cell.
    #[inline]
    pub fn get_or_init<F: FnOnce() -> T>(&self, f: F) -> &T {
        if !self.once.is_completed() {
            let (mut f, slot) = (Some(f), self.value.get());
            self.once.call(true, &mut |_| {
                let value = f.take().expect("called once")();
                // SAFETY: `once` lets one closure run at a time, and nobody reads before it is
                // complete.
                unsafe { (*slot).write(value) };
            });
        }
        // SAFETY: `call` returns when it is complete.
        unsafe { self.get_unchecked() }
    }

    /// The value, taken out.
    #[inline]
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// The value, taken out; the cell is empty again.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        if !self.once.is_completed() {
            return None;
        }
        self.once = Once::new();
        // SAFETY: it was complete, so written, and now counts as empty.
        Some(unsafe { (*self.value.get()).assume_init_read() })
    }

    /// # Safety
    /// `once` is complete.
    #[inline]
    unsafe fn get_unchecked(&self) -> &T {
        debug_assert!(self.once.is_completed());
        // SAFETY: the caller's promise.
        unsafe { (*self.value.get()).assume_init_ref() }
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        if self.once.is_completed() {
            // SAFETY: complete, so written; dropped once.
            unsafe { (*self.value.get()).assume_init_drop() };
        }
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_tuple("OnceLock");
        match self.get() {
            Some(value) => d.field(value),
            None => d.field(&format_args!("<uninit>")),
        };
        d.finish()
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> OnceLock<T> {
        match self.get() {
            Some(value) => OnceLock::from(value.clone()),
            None => OnceLock::new(),
        }
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> OnceLock<T> {
        let cell = OnceLock::new();
        let _ = cell.set(value);
        cell
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &OnceLock<T>) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}
