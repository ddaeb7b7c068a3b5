//! Shortage: no kernel thread is left in the pool and none can be started.

use std::sync::atomic::Ordering;

use crate::handoff::slot::Slot;
use crate::linux::watch::{self, Tid, WaitSite};
use crate::pool::kernel::Kernel;

impl Kernel {
    /// Returns whether the last attempt to start a kernel thread failed or is delayed, and the pool
    /// is empty. The result is a snapshot. Async-signal-safe.
    #[must_use]
    pub fn is_short_of_threads(&self) -> bool {
        (self.is_short.load(Ordering::Relaxed) || self.pending_starts.delayed() != 0)
            && !self.has_spare()
    }

    /// Returns whether kernel threads are short and a VP other than `vp` has no carrier, or a
    /// sleeping one. A parked VP needs none. The carrier of an idle `vp` should then serve that VP
    /// ([`KernelThread::pass_on`](crate::KernelThread::pass_on)).
    #[must_use]
    pub fn has_unserved_vp(&self, vp: u32) -> bool {
        self.is_short_of_threads()
            && (0..self.vps).filter(|other| *other != vp).any(|other| {
                let index = self.carriers.of(other);
                if index == 0 {
                    !self.is_parked(other)
                } else {
                    self.sleeps_unreported(index).is_some()
                }
            })
    }

    /// Returns the thread ID of the carrier in slot `index`, if it sleeps outside of the user
    /// scheduler.
    pub(crate) fn sleeps_unreported(&self, index: u32) -> Option<Tid> {
        let slot = self.page.slot(index);
        if self.watchdog.rests(index) || slot.is_masked() {
            return None;
        }
        Some(slot.tid.load(Ordering::Relaxed) as Tid).filter(|tid| watch::is_asleep(*tid))
    }

    /// Returns the place in the kernel where the thread of `slot` sleeps, or `None` if it does not
    /// sleep.
    #[must_use]
    pub fn wait_site(slot: &Slot) -> Option<WaitSite> {
        WaitSite::of(slot.tid.load(Ordering::Relaxed) as Tid)
    }
}
