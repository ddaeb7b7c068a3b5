//! What looks at waits that nothing interposes: `crates/interpose` registers it.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::scheduler::instance::Instance;

/// Shortest interval between two looks, in nanoseconds.
const EVERY: u64 = 10_000_000;

/// Looks at a kernel thread, by its id, whose microprocess often blocks in calls unknown to the
/// runtime. Returns whether it is to be called again. Called by the timekeeper: it must not wait
/// for anything that a thread of the program may hold, as the allocator's lock.
pub type Look = fn(u32) -> bool;

static LOOK: OnceLock<Look> = OnceLock::new();

/// Has the timekeeper call `look` now and then. Only the first one in a process is called.
pub fn look_at_unknown_waits(look: Look) {
    let _ = LOOK.set(look);
}

impl Instance {
    /// Has the kernel thread that became sticky last looked at, at most once in [`EVERY`]. By the
    /// timekeeper only: others that scan in its place may be on an alternate signal stack, which is
    /// too small for a look.
    pub(crate) fn look_at_unknown_wait(&self) {
        let sticky = &self.sticky;
        let thread = sticky.last.load(Ordering::Relaxed);
        if thread == 0 {
            return;
        }
        let Some(look) = LOOK.get() else { return };
        let now = self.now();
        if now.saturating_sub(sticky.looked_at.load(Ordering::Relaxed)) < EVERY {
            return;
        }
        sticky.looked_at.store(now, Ordering::Relaxed);
        if !look(thread) {
            sticky.last.store(0, Ordering::Relaxed);
        }
    }
}
