//! The cores of the process, and the core of the calling kernel thread.

use std::sync::OnceLock;

/// Returns the core on which the caller runs at the moment.
#[must_use]
pub fn core() -> Option<u32> {
    // SAFETY: no pointers.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Returns the cores of the process, as of its first runtime.
pub(crate) fn cores() -> &'static [u32] {
    static CORES: OnceLock<Vec<u32>> = OnceLock::new();
    CORES.get_or_init(kumihimo_events::cores::affinity)
}
