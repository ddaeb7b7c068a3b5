//! Value that is computed at its first access.

use crate::init::once::Once;
use crate::loom::const_fn;
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Value that is computed at its first access. The API is that of [`std::sync::LazyLock`].
///
/// Accesses during the computation *block* the microprocess, or the kernel thread if the caller is
/// not a microprocess. Not a cancellation point. The computation *happens before* the return of
/// every access.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::LazyLock;
///
/// static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| "one two".split(' ').collect());
/// assert_eq!(WORDS.len(), 2);
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    once: Once,
    data: UnsafeCell<Data<T, F>>,
}

/// Holds `f` until the computation starts, then nothing, and `value` once `once` is complete.
union Data<T, F> {
    value: ManuallyDrop<T>,
    f: ManuallyDrop<F>,
}

// SAFETY: as for `OnceLock<T>`; the closure is moved to the thread that runs it.
unsafe impl<T: Sync + Send, F: Send> Sync for LazyLock<T, F> {}
// SAFETY: owning the cell is owning the value or the closure.
unsafe impl<T: Send, F: Send> Send for LazyLock<T, F> {}
impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    const_fn! {
        /// Creates a value that `f` computes at the first access.
        #[inline]
        pub fn new(f: F) -> LazyLock<T, F> {
            LazyLock { once: Once::new(), data: UnsafeCell::new(Data { f: ManuallyDrop::new(f) }) }
        }
    }

    /// Returns the value, computing it if necessary. Dereferencing does the same. Blocks the
    /// microprocess while another thread computes the value.
    ///
    /// # Panics
    /// If the closure panics or has panicked before, or if it accesses the value itself.
    #[inline]
    #[track_caller]
    pub fn force(this: &LazyLock<T, F>) -> &T {
        if !this.once.is_completed() {
            let data = this.data.get();
            this.once.call(true, &mut |state| {
                assert!(!state.is_poisoned(), "LazyLock instance has previously been poisoned");
                // SAFETY: a panic poisons `once`, so what follows runs once only. No other thread
                // accesses the data meanwhile, and `f` is still there.
                unsafe {
                    let f = ManuallyDrop::take(&mut (*data).f);
                    let value = f();
                    data.write(Data { value: ManuallyDrop::new(value) });
                }
            });
        }
        // SAFETY: `once` is complete, so the value is there and is not written again.
        unsafe { &(*this.data.get()).value }
    }
}

impl<T, F> Drop for LazyLock<T, F> {
    fn drop(&mut self) {
        let data = self.data.get_mut();
        if self.once.is_completed() {
            // SAFETY: `once` is complete, so the value is there; it is dropped once only.
            unsafe { ManuallyDrop::drop(&mut data.value) };
        } else if !self.once.is_poisoned() {
            // SAFETY: `once` is neither complete nor poisoned, so the closure is still there.
            unsafe { ManuallyDrop::drop(&mut data.f) };
        }
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;
    #[inline]
    #[track_caller]
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> LazyLock<T> {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut d = f.debug_tuple("LazyLock");
        if self.once.is_completed() {
            // SAFETY: `once` is complete, so the value is there.
            d.field(unsafe { &*(*self.data.get()).value });
        } else {
            d.field(&format_args!("<uninit>"));
        }
        d.finish()
    }
}
