//! Clean-up of a wait that a cancellation ends.

/// Runs its closure while unwinding. A wait that returns forgets it.
pub(crate) struct OnUnwind<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnUnwind<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
