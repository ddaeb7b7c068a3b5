//! Calls that block the kernel thread whatever we do.

/// Runs `f`, which may block the kernel thread for long; the virtual processor goes on elsewhere meanwhile.
pub(crate) fn blocking<R>(f: impl FnOnce() -> R) -> R {
    f()
}
