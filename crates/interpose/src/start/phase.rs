//! Whether the runtime has started in this process, and how the functions came into it.

use crate::real::libc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

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

/// The process that has left [`Phase::NotYet`].
static PROCESS: AtomicI32 = AtomicI32::new(0);

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

/// Whether the caller is in the process of the runtime. The child of a vfork(2) shares the memory
/// of its parent and is not: it has descriptors of its own. Asks the kernel, since the C library
/// does not remember the number either.
pub(crate) fn is_of_this_process() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::getpid() == PROCESS.load(Ordering::Relaxed) }
}

pub(crate) fn set(phase: Phase) {
    // SAFETY: takes nothing.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    PHASE.store(phase as u8, Ordering::Release);
}

static IS_LINKED: AtomicBool = AtomicBool::new(false);

/// Whether the functions are in the program, and not in a preloaded library.
#[inline]
pub(crate) fn is_linked() -> bool {
    IS_LINKED.load(Ordering::Relaxed)
}

/// Notes that the functions are in the program.
pub(crate) fn set_linked() {
    IS_LINKED.store(true, Ordering::Relaxed);
}
