//! Gates in a fork's child, which are its parent's.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, ErrorKind};

static IN_FORKED_CHILD: AtomicBool = AtomicBool::new(false);

/// Records that this process is a fork's child. Async-signal-safe.
pub(crate) fn note_forked_child() {
    IN_FORKED_CHILD.store(true, Ordering::Relaxed);
}

/// Whether this process is a fork's child of a process with gates. Its gates are the parent's: it
/// must not write to their lanes, and their locks may be held by kernel threads that it does not
/// have.
pub(crate) fn in_forked_child() -> bool {
    IN_FORKED_CHILD.load(Ordering::Relaxed)
}

/// The error for calls in a fork's child.
pub(crate) fn forked_child_error() -> Error {
    let text =
        "this process is a fork's child, whose gates are its parent's: execute a program first";
    Error::new(ErrorKind::Io, text)
}
