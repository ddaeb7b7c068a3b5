//! Clean-up after a wait that unwinds on cancellation.

/// Runs its closure on drop, that is, while unwinding. A wait that returns normally forgets it.
pub(crate) struct OnUnwind<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnUnwind<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
