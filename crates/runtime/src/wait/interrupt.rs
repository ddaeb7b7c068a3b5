//! Waits that end early because the program has something else to do in the waiting thread: under
//! `kumi run`, a signal to handle.

use std::sync::OnceLock;

static IS_DUE: OnceLock<fn() -> bool> = OnceLock::new();

/// Has `is_due` asked whenever a waiting microprocess was woken for no other reason. If it returns
/// true, waits for descriptors, sleeps and joins end early. Only the first call in a process takes
/// effect.
///
/// `is_due` runs as the waiting thread and must not wait.
pub fn end_waits_when(is_due: fn() -> bool) {
    let _ = IS_DUE.set(is_due);
}

/// Whether the calling thread's wait must end.
#[inline]
pub(crate) fn is_due() -> bool {
    IS_DUE.get().is_some_and(|is_due| is_due())
}
