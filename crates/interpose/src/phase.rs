//! Whether the runtime has started in this process.

use std::sync::atomic::{AtomicU8, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No thread was created through this library so far.
    NotYet,
    /// The runtime runs.
    Started,
    /// The process goes on with kernel threads.
    Off,
}

static PHASE: AtomicU8 = AtomicU8::new(Phase::NotYet as u8);

/// Whether the runtime has started. Otherwise the process has no microprocess, and its threads are
/// left to the C library.
#[inline]
pub(crate) fn has_started() -> bool {
    PHASE.load(Ordering::Acquire) == Phase::Started as u8
}

pub(crate) fn get() -> Phase {
    match PHASE.load(Ordering::Acquire) {
        phase if phase == Phase::NotYet as u8 => Phase::NotYet,
        phase if phase == Phase::Started as u8 => Phase::Started,
        _ => Phase::Off,
    }
}

pub(crate) fn set(phase: Phase) {
    PHASE.store(phase as u8, Ordering::Release);
}
