//! Data that a scope shares with its children and their handles.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Result;
use std::time::Instant;

use crate::kernel_thread::no_events::lock;
use crate::microprocess::record::ScopeHead;
use crate::microprocess::waiter::Waiter;
use crate::wait::cancel;

/// State shared by a scope, its children and their handles. Stored in the frame of [`scope`].
#[repr(C)]
pub(crate) struct ScopeData {
    head: ScopeHead,
    pub(crate) running: AtomicUsize,
    /// Number of children that panicked, and of those whose outcome was taken.
    panicked: AtomicUsize,
    handled: AtomicUsize,
    /// See [`Scope::tolerate_panics`].
    pub(crate) tolerant: AtomicBool,
    owner: Waiter,
    /// For `cancel`: the living children, and those that have ended since the last sweep of the
    /// list.
    children: Mutex<Children>,
}

#[derive(Default)]
struct Children {
    list: Vec<Waiter>,
    cancelled: bool,
    sweep_at: usize,
}

impl ScopeData {
    /// Creates a scope of the calling thread, without children.
    pub(crate) fn new(owner: Waiter, deadline: Option<Instant>) -> ScopeData {
        ScopeData {
            head: ScopeHead { deadline },
            running: AtomicUsize::new(0),
            panicked: AtomicUsize::new(0),
            handled: AtomicUsize::new(0),
            tolerant: AtomicBool::new(false),
            owner,
            children: Mutex::default(),
        }
    }

    /// Returns the part that the record of a child refers to.
    pub(crate) fn head(&self) -> NonNull<ScopeHead> {
        NonNull::from(self).cast()
    }

    /// Returns the address by which reports find the children: that of [`head`](Self::head).
    pub(crate) fn address(&self) -> usize {
        self.head().addr().get()
    }

    /// # Safety
    /// `head` was returned by [`head`](ScopeData::head), and the scope still waits.
    pub(crate) unsafe fn of_head<'a>(head: NonNull<ScopeHead>) -> &'a ScopeData {
        // SAFETY: the caller's promise; `head` is the first field of a `repr(C)` structure, and the
        // pointer was made from the whole.
        unsafe { head.cast::<ScopeData>().as_ref() }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.head.deadline
    }

    /// Records the end of a child, as the child's last access to the scope. Its closure, everything
    /// that the closure borrowed and (if no handle will take it) its outcome have been dropped.
    pub(crate) fn child_ends(&self, panicked: bool) {
        if panicked {
            self.panicked.fetch_add(1, Ordering::Relaxed);
        }
        // The owner may leave the scope, and so end the life of `self`, as soon as the count is 0.
        let owner = self.owner.clone();
        if self.running.fetch_sub(1, Ordering::Release) == 1 {
            owner.wake();
        }
    }

    /// Records that the caller receives a child's outcome: a panic in it does not make the scope
    /// panic.
    pub(crate) fn note_outcome<T>(&self, outcome: Result<T>) -> Result<T> {
        if outcome.as_ref().is_err_and(|payload| !payload.is::<cancel::Cancelled>()) {
            // The child counts its panic when it ends, which may be a moment after its outcome
            // could be taken.
            self.handled.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    pub(crate) fn has_unhandled(&self) -> bool {
        !self.tolerant.load(Ordering::Relaxed)
            && self.panicked.load(Ordering::Relaxed) > self.handled.load(Ordering::Relaxed)
    }

    pub(crate) fn enrol(&self, child: &Waiter) {
        let mut children = lock(&self.children);
        if children.cancelled {
            cancel::request(child);
        }
        if children.list.len() >= children.sweep_at.max(64) {
            children.list.retain(Waiter::is_alive);
            children.sweep_at = children.list.len() * 2;
        }
        children.list.push(child.clone());
    }

    pub(crate) fn cancel(&self) {
        let mut children = lock(&self.children);
        children.cancelled = true;
        for child in children.list.drain(..) {
            cancel::request(&child);
        }
    }
}
