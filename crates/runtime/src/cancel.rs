//! Cooperative cancellation.
use std::time::Instant;

/// The payload with which a cancelled microprocess unwinds; `JoinHandle::join` returns it in its `Err`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

/// A cancellation point: unwinds if the calling microprocess was cancelled, is not masked and is not unwinding already.
pub fn point() {}

/// Whether the calling microprocess was asked to end.
pub fn requested() -> bool {
    false
}

/// Runs `f` with cancellation held back; a request that arrives meanwhile acts at the next point after it.
pub fn masked<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// The deadline that the innermost enclosing scope hands down, if any.
pub fn deadline() -> Option<Instant> {
    None
}
