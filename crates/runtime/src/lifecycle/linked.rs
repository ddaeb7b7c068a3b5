//! A program whose calls of the C library are interposed, by `crates/interpose` in it: what the
//! start of a runtime does besides, and what looks at waits that nothing interposes.

use std::sync::OnceLock;

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

/// Looks at a kernel thread, by its id, whose microprocess often blocks in calls unknown to the
/// runtime. Returns whether it is to be called again. Async-signal-safe.
pub type Look = fn(u32) -> bool;

static LOOK: OnceLock<Look> = OnceLock::new();

/// Has the timekeeper call `look` now and then. Only the first one in a process is called.
pub fn look_at_unknown_waits(look: Look) {
    let _ = LOOK.set(look);
}

pub(crate) fn look() -> Option<Look> {
    LOOK.get().copied()
}
