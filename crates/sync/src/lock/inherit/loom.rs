//! Empty priority inheritance for loom: models have no priorities, and loom's atomics cannot be
//! statics.

use crate::lock::rawmutex::RawMutex;
use crate::wait::waitlist::Node;

pub(crate) struct Link;

impl Link {
    pub(crate) fn new(_: &RawMutex, _: &Node) -> Link {
        Link
    }
}

/// # Safety
/// None needed.
pub(crate) unsafe fn blocked(_: &Link) {}
pub(crate) fn unblocked(_: &Link) {}
pub(crate) fn released(_: &RawMutex, _: u64) {}
pub(crate) fn pressing(_: u64) {}
