//! Cell that is written once.

use crate::init::once::Once;
use crate::loom::const_fn;
use crate::wait::deadline;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

/// Cell that can be written once and then read by all threads. The API is that of
/// [`std::sync::OnceLock`], with [`wait_timeout`](OnceLock::wait_timeout) and
/// [`wait_until`](OnceLock::wait_until) added.
///
/// `get_or_init` and `set` *block* while another thread initialises the cell; `wait` blocks until
/// the cell is written. They block the microprocess, or the kernel thread if the caller is not a
/// microprocess. Not a cancellation point. Writing *happens before* every read.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::OnceLock;
///
/// static PORT: OnceLock<u16> = OnceLock::new();
/// assert_eq!(PORT.get(), None);
/// assert_eq!(*PORT.get_or_init(|| 80), 80);
/// assert_eq!(PORT.set(81), Err(81));
/// ```
pub struct OnceLock<T> {
    once: Once,
    /// Written before `once` completes. An `Option`, and no `Drop` of the cell: what `T` borrows
    /// may then end together with the cell, as with std's (the drop check).
    value: UnsafeCell<Option<T>>,
}

// SAFETY: shared readers get `&T`. The thread that writes the value may differ from the thread that
// drops it, hence `T: Send`.
unsafe impl<T: Sync + Send> Sync for OnceLock<T> {}
// SAFETY: owning the cell is owning the value.
unsafe impl<T: Send> Send for OnceLock<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    const_fn! {
        /// Creates an empty cell.
        #[inline]
        pub fn new() -> OnceLock<T> {
            OnceLock { once: Once::new(), value: UnsafeCell::new(None) }
        }
    }

    /// Returns the value if it was written. Never blocks.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: `once` is complete, so the value is there and is not written again while
        // borrowed.
        self.once.is_completed().then(|| unsafe { self.get_unchecked() })
    }

    /// Returns the value if it was written.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut().as_mut()
    }

    /// Returns the value. Blocks the microprocess until it is written.
    pub fn wait(&self) -> &T {
        self.once.wait_force();
        // SAFETY: the wait ends when the value is written.
        unsafe { self.get_unchecked() }
    }

    /// Waits like [`wait`](OnceLock::wait), but returns `None` after `timeout`. Blocks the
    /// microprocess meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::OnceLock;
    /// use std::time::Duration;
    ///
    /// let answer = OnceLock::new();
    /// assert_eq!(answer.wait_timeout(Duration::from_millis(5)), None);
    /// answer.set(42).unwrap();
    /// assert_eq!(answer.wait_timeout(Duration::from_millis(5)), Some(&42));
    /// ```
    pub fn wait_timeout(&self, timeout: Duration) -> Option<&T> {
        self.wait_limited(deadline::after(timeout))
    }

    /// Waits like [`wait`](OnceLock::wait), but returns `None` at `deadline`. Blocks the
    /// microprocess meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::OnceLock;
    /// use kumihimo::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let address = OnceLock::new();
    /// thread::scope(|s| {
    ///     s.spawn(|| address.set("10.0.0.1"));
    ///     let found = address.wait_until(Instant::now() + Duration::from_secs(60));
    ///     assert_eq!(found, Some(&"10.0.0.1"));
    /// });
    /// ```
    pub fn wait_until(&self, deadline: Instant) -> Option<&T> {
        self.wait_limited(Some(deadline))
    }

    fn wait_limited(&self, deadline: Option<Instant>) -> Option<&T> {
        // SAFETY: the wait returns true only once the value is written.
        self.once.wait_limited(true, deadline).then(|| unsafe { self.get_unchecked() })
    }

    /// Writes the value. Blocks the microprocess while another thread initialises the cell.
    ///
    /// # Errors
    /// Returns `value` if the cell was already written.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        match value {
            None => Ok(()),
            Some(value) => Err(value),
        }
    }

    /// Returns the value. Runs `f` to compute it if the cell is empty, or blocks the microprocess
    /// while another thread does so.
    ///
    /// # Panics
    /// If `f` panics, which leaves the cell empty, or if `f` accesses the value of the same cell.
    #[inline]
    pub fn get_or_init<F: FnOnce() -> T>(&self, f: F) -> &T {
        if !self.once.is_completed() {
            let (mut f, slot) = (Some(f), self.value.get());
            self.once.call(true, &mut |_| {
                let value = f.take().expect("called once")();
                // SAFETY: `once` runs one closure at a time, and no thread reads the value before
                // `once` completes.
                unsafe { *slot = Some(value) };
            });
        }
        // SAFETY: `call` returns only when `once` is complete.
        unsafe { self.get_unchecked() }
    }

    /// Consumes the cell and returns its value, if it was written.
    #[inline]
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// Takes the value out and leaves the cell empty.
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        if self.once.is_completed() {
            self.once = Once::new();
        }
        self.value.get_mut().take()
    }

    /// # Safety
    /// `once` must be complete.
    #[inline]
    unsafe fn get_unchecked(&self) -> &T {
        debug_assert!(self.once.is_completed());
        // SAFETY: the caller's contract: the value is there, and is not written while borrowed.
        unsafe { (*self.value.get()).as_ref().unwrap_unchecked() }
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
