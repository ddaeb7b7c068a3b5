//! State shared by all blocks of the process: the layout, the models and the templates.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::donor::Donor;
use super::glibc::{Calls, Keys, Layout};
use super::template::Template;
use crate::kind::Kind;
use crate::lock::Lock;

pub(crate) struct Inner {
    pub(super) kind: Kind,
    pub(super) layout: Layout,
    pub(super) calls: Calls,
    pub(super) keys: Keys,
    pub(super) libc_words: Vec<isize>,
    pub(super) lock: Lock,
    /// The models, guarded by `lock`. Replaced in the child of a fork.
    pub(super) donors: UnsafeCell<[Donor; 3]>,
    /// Every template ever published, guarded by `lock`, so that an equal one is not leaked twice.
    pub(super) known: UnsafeCell<Vec<&'static Template>>,
    /// The program's dlopen bypasses this crate, so the chain is permanently on the C library's
    /// list.
    pub(super) listed: bool,
    /// The number of loads and unloads ([`modules::loads`](super::glibc::modules::loads)) at the
    /// last renewal of the template. Maintained only if `listed`.
    pub(super) loads: AtomicU64,
    /// Set in the child of a fork until it has new donors.
    pub(super) orphaned: AtomicBool,
    pub(super) builds: AtomicU64,
    pub(super) scans: AtomicU64,
    pub(super) published: AtomicU64,
}

// SAFETY: the cells are accessed only under `lock`.
unsafe impl Sync for Inner {}
// SAFETY: no field is tied to a thread.
unsafe impl Send for Inner {}

pub(super) static READY: AtomicPtr<Inner> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the state if it exists. For code that also runs in programs that use no microprocesses.
pub(super) fn ready() -> Option<&'static Inner> {
    // SAFETY: set once, to a leaked box.
    unsafe { READY.load(Ordering::Acquire).as_ref() }
}
