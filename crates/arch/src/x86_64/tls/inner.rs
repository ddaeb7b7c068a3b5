//! What cloned and donated blocks are made from, once for the process.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::donor::Donor;
use super::glibc::{Calls, Layout};
use super::keys::Keys;
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
    /// Under `lock`: the models, replaced in the child of a fork.
    pub(super) donors: UnsafeCell<[Donor; 3]>,
    /// Under `lock`: every template ever published, so that the same one is never leaked twice.
    pub(super) known: UnsafeCell<Vec<&'static Template>>,
    /// dlopen does not come through us, so that the chain hangs in the C library's list for good.
    pub(super) listed: bool,
    /// What [`modules::loads`] said when the template was last renewed; kept only if `listed`.
    pub(super) loads: AtomicU64,
    /// In the child of a fork, until there are new donors.
    pub(super) orphaned: AtomicBool,
    pub(super) builds: AtomicU64,
    pub(super) scans: AtomicU64,
    pub(super) published: AtomicU64,
}

// SAFETY: the cells are used under `lock` only.
unsafe impl Sync for Inner {}
// SAFETY: nothing in it is tied to a thread.
unsafe impl Send for Inner {}

pub(super) static READY: AtomicPtr<Inner> = AtomicPtr::new(std::ptr::null_mut());

/// For code that runs in any program, whether it uses microprocesses or not.
pub(super) fn ready() -> Option<&'static Inner> {
    // SAFETY: set once, to a leaked box.
    unsafe { READY.load(Ordering::Acquire).as_ref() }
}
