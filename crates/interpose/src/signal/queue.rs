//! The signals that wait for one thread.
//!
//! Any thread adds, also in a signal handler: nodes come from a fixed supply, and are put on a
//! stack of which the owner takes the whole. Only the owner takes signals out, in a section without
//! handlers.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::real::libc;
use crate::signal::set::bit;

/// What the kernel tells about a signal; sigaction(2).
pub(super) type Info = libc::siginfo_t;

/// Signals that may wait in the process at the same time, as RLIMIT_SIGPENDING of the kernel.
const MOST: usize = 4096;

struct Node {
    is_used: AtomicBool,
    next: Cell<*const Node>,
    signal: Cell<c_int>,
    info: UnsafeCell<[u64; 16]>,
}

const _: () = assert!(size_of::<Info>() == size_of::<[u64; 16]>());

// SAFETY: a node belongs to the thread that has set `is_used`, and then to the owner of the queue.
unsafe impl Sync for Node {}

static NODES: [Node; MOST] = [const {
    Node {
        is_used: AtomicBool::new(false),
        next: Cell::new(std::ptr::null()),
        signal: Cell::new(0),
        info: UnsafeCell::new([0; 16]),
    }
}; MOST];

/// Takes a free node.
fn claim() -> Option<&'static Node> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let from = NEXT.fetch_add(1, Ordering::Relaxed);
    (0..MOST).map(|step| &NODES[(from.wrapping_add(step)) % MOST]).find(|node| {
        // Acquire: the last owner has read what it holds.
        !node.is_used.load(Ordering::Relaxed) && !node.is_used.swap(true, Ordering::Acquire)
    })
}

impl Node {
    fn give_back(&self) {
        self.is_used.store(false, Ordering::Release);
    }
}

pub(super) struct Queue {
    /// The signals in the queue.
    pending: AtomicU64,
    /// A stack of those that have come since the owner last looked.
    arrived: AtomicPtr<Node>,
    /// The earlier ones, first come first. The owner's.
    kept: Cell<*const Node>,
}

// SAFETY: only the owner uses `kept`.
unsafe impl Sync for Queue {}

/// The real-time signals: each that is sent waits for itself, others once; signal(7).
fn is_counted(signal: c_int) -> bool {
    signal >= libc::SIGRTMIN()
}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue {
            pending: AtomicU64::new(0),
            arrived: AtomicPtr::new(std::ptr::null_mut()),
            kept: Cell::new(std::ptr::null()),
        }
    }

    /// The signals that wait.
    #[inline]
    pub(super) fn pending(&self) -> u64 {
        self.pending.load(Ordering::SeqCst)
    }

    /// Adds a signal. Returns false if there is no room. Async-signal-safe.
    pub(super) fn add(&self, signal: c_int, info: &Info) -> bool {
        if !is_counted(signal) && self.pending() & bit(signal) != 0 {
            return true;
        }
        let Some(node) = claim() else { return false };
        node.signal.set(signal);
        // SAFETY: the node is the caller's; the sizes agree.
        unsafe { *node.info.get() = std::mem::transmute::<Info, [u64; 16]>(*info) };
        let mut head = self.arrived.load(Ordering::Relaxed);
        loop {
            node.next.set(head);
            let new = std::ptr::from_ref(node).cast_mut();
            // Release: the owner reads the node. It takes all at once, so an address that comes
            // back means no other list.
            match self.arrived.compare_exchange(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => head = other,
            }
        }
        // SeqCst: the sender then reads the mask, and the owner changes its mask and then reads
        // this.
        self.pending.fetch_or(bit(signal), Ordering::SeqCst);
        true
    }

    /// Takes the first signal of this number out. The owner only, in a section without handlers.
    pub(super) fn take(&self, signal: c_int) -> Option<Info> {
        self.pending.fetch_and(!bit(signal), Ordering::SeqCst);
        self.collect();
        let mut before: Option<&Node> = None;
        let mut at = self.kept.get();
        let mut found = None;
        // SAFETY: nodes of the list are the owner's, and static.
        while let Some(node) = unsafe { at.as_ref() } {
            at = node.next.get();
            if node.signal.get() != signal {
                before = Some(node);
                continue;
            }
            if found.is_some() {
                // Another one of the same number waits on.
                self.pending.fetch_or(bit(signal), Ordering::SeqCst);
                break;
            }
            match before {
                Some(before) => before.next.set(at),
                None => self.kept.set(at),
            }
            // SAFETY: the node is the owner's; the sizes agree.
            found = Some(unsafe { std::mem::transmute::<[u64; 16], Info>(*node.info.get()) });
            node.give_back();
        }
        found
    }

    /// Moves what has arrived to the end of what is kept.
    fn collect(&self) {
        let mut at: *const Node = self.arrived.swap(std::ptr::null_mut(), Ordering::Acquire);
        let mut first: *const Node = std::ptr::null();
        // The stack has the last one on top.
        // SAFETY: nodes of the list are the owner's, and static.
        while let Some(node) = unsafe { at.as_ref() } {
            at = node.next.get();
            node.next.set(first);
            first = node;
        }
        let mut last = self.kept.get();
        if last.is_null() {
            self.kept.set(first);
            return;
        }
        // SAFETY: as above.
        while let Some(node) = unsafe { last.as_ref() } {
            last = node.next.get();
            if last.is_null() {
                node.next.set(first);
            }
        }
    }

    /// Drops all. The owner only.
    pub(super) fn clear(&self) {
        self.pending.store(0, Ordering::SeqCst);
        self.collect();
        let mut at = self.kept.replace(std::ptr::null());
        // SAFETY: nodes of the list are the owner's, and static.
        while let Some(node) = unsafe { at.as_ref() } {
            at = node.next.get();
            node.give_back();
        }
    }
}
