//! A call that a new thread makes, passed through the one argument of its start routine.

use std::ffi::c_void;

/// A function of the program, and its argument.
pub(crate) struct Call<F> {
    pub(crate) routine: F,
    pub(crate) argument: *mut c_void,
}

impl<F> Call<F> {
    /// Returns the address for the new thread.
    pub(crate) fn pass(self) -> *mut c_void {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Takes back what [`pass`](Call::pass) has returned.
    ///
    /// # Safety
    /// `passed` is such an address, of the same type, and was not taken.
    pub(crate) unsafe fn take(passed: *mut c_void) -> Call<F> {
        // SAFETY: the caller's promise.
        *unsafe { Box::from_raw(passed.cast::<Call<F>>()) }
    }
}
