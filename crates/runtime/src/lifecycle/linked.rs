//! A program whose calls of the C library are interposed, by `crates/interpose` in it: what the
//! start of a runtime does besides, and what looks at waits that nothing interposes.

use std::sync::OnceLock;

pub use crate::upcall::unknown_wait::{Look, look_at_unknown_waits};

/// What the interposed functions need of the start of a runtime.
#[derive(Clone, Copy, Debug)]
pub struct Linked {
    /// Called once, before the first runtime of the process installs handlers of signals.
    pub before_start: fn(),
    /// Called once, when the first runtime runs.
    pub after_start: fn(),
}

static LINKED: OnceLock<Linked> = OnceLock::new();

/// Registers the interposed functions. Only the first registration in a process takes effect.
pub fn register(linked: Linked) {
    let _ = LINKED.set(linked);
}

pub(crate) fn before_start() {
    static ONCE: OnceLock<()> = OnceLock::new();
    if let Some(linked) = LINKED.get() {
        ONCE.get_or_init(linked.before_start);
    }
}

pub(crate) fn after_start() {
    static ONCE: OnceLock<()> = OnceLock::new();
    if let Some(linked) = LINKED.get() {
        ONCE.get_or_init(linked.after_start);
    }
}

/// Whether the program's calls are interposed.
pub(crate) fn is_linked() -> bool {
    LINKED.get().is_some()
}
