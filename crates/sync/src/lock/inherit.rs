//! Priority inheritance through mutexes.
//!
//! A microprocess that waits for a mutex lends its priority to the owner while it waits. If the
//! owner waits for another mutex, the loan propagates along the chain of owners. Loans begin and
//! end under one global lock, and only on the contended path where priorities differ. Kernel
//! threads lend with priority 32, but cannot borrow, so they end a chain.
//!
//! Two data structures consist of nodes on the waiters' stacks. `BLOCKED` maps a microprocess to
//! the mutex for which it waits. It is hashed by id, so a waiter mostly takes one uncontended
//! bucket lock. `BOOSTS` lists the waiters that lend their priority.
//!
//! No loan is missed. A waiter first enters `BLOCKED` and then reads its own priority; a lender
//! first raises the borrower's priority and then looks the borrower up in `BLOCKED`. At least one
//! of the two observes the other.
//!
//! No loan is left over. Granting a loan sets the mutex's `WAITERS` bit, so the owner's unlock
//! calls [`released`]. A waiter that leaves ends its own loan.

use crate::lock::rawmutex::RawMutex;
use crate::loom::find;
use crate::wait::list_lock::ListLock;
use crate::wait::lockrank::Rank;
use crate::wait::waitlist::Node;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

/// Inheritance data of a blocked locker. Lies on the waiter's stack, next to its node.
pub(crate) struct Link {
    id: u64,
    mutex: *const RawMutex,
    node: *const Node,
    /// Priority with which the node was queued.
    queued_as: u8,
    /// Neighbours in `BLOCKED`, guarded by the bucket's lock.
    prev: Cell<*const Link>,
    next: Cell<*const Link>,
    /// Neighbours in `BOOSTS`, the borrower (0: none) and the lent priority, guarded by the lock of
    /// `BOOSTS`.
    lend_prev: Cell<*const Link>,
    lend_next: Cell<*const Link>,
    borrower: Cell<u64>,
    lent: Cell<u8>,
}

struct List(*const Link);
// SAFETY: links are followed only under the lock around the list, and leave the list under that
// lock before their stack frame ends.
unsafe impl Send for List {}

const BUCKETS: usize = 64;
static BLOCKED: [ListLock<List>; BUCKETS] =
    [const { ListLock::new(Rank::Blocked, List(ptr::null())) }; BUCKETS];
static BOOSTS: ListLock<List> = ListLock::new(Rank::Boosts, List(ptr::null()));
/// Number of loans. While it is 0 and the owner's priority is not lower, a waiter does not take the
/// global lock.
static LOANS: AtomicUsize = AtomicUsize::new(0);

fn bucket(id: u64) -> &'static ListLock<List> {
    // Fibonacci hashing: the low bits of ids may be constant.
    &BLOCKED[(id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % BUCKETS]
}

impl Link {
    pub(crate) fn new(mutex: &RawMutex, node: &Node) -> Link {
        Link {
            id: node.tag as u64,
            mutex,
            node,
            queued_as: node.priority(),
            prev: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
            lend_prev: Cell::new(ptr::null()),
            lend_next: Cell::new(ptr::null()),
            borrower: Cell::new(0),
            lent: Cell::new(0),
        }
    }

    fn node(&self) -> &Node {
        // SAFETY: created from a reference in `new`; the link and its node lie in one stack frame
        // of the waiter.
        unsafe { &*self.node }
    }

    fn mutex(&self) -> &RawMutex {
        // SAFETY: the waiter borrows the mutex while its link is in a list.
        unsafe { &*self.mutex }
    }
}

/// Registers the waiter of `link`, which has just been queued and may have been woken already.
/// Lends its priority to the owner if that is lower.
///
/// # Safety
/// `link` must not move until [`unblocked`] has returned for it.
pub(crate) unsafe fn blocked(link: &Link) {
    let node = link.node();
    if node.waiter.is_microprocess() {
        let mut list = bucket(link.id).lock();
        link.prev.set(ptr::null());
        link.next.set(list.0);
        // SAFETY: links in the list are alive.
        if let Some(n) = unsafe { list.0.as_ref() } {
            n.prev.set(link);
        }
        list.0 = link;
    }
    let priority = node.waiter.priority();
    let pressing = || find(link.mutex().owner()).is_some_and(|owner| owner.priority() < priority);
    if priority != link.queued_as || pressing() || LOANS.load(SeqCst) != 0 {
        let mut boosts = BOOSTS.lock();
        let next = renew(&mut boosts, link);
        follow(&mut boosts, next);
    }
}

/// Unregisters the waiter of `link`, which no longer waits, and ends its loan.
pub(crate) fn unblocked(link: &Link) {
    if link.node().waiter.is_microprocess() {
        let mut list = bucket(link.id).lock();
        let (prev, next) = (link.prev.get(), link.next.get());
        // SAFETY: links in the list are alive.
        match unsafe { prev.as_ref() } {
            Some(n) => n.next.set(next),
            None => list.0 = next,
        }
        // SAFETY: as above.
        if let Some(n) = unsafe { next.as_ref() } {
            n.prev.set(prev);
        }
    }
    if LOANS.load(SeqCst) != 0 {
        let mut boosts = BOOSTS.lock();
        let borrower = link.borrower.get();
        if borrower != 0 {
            end(&mut boosts, link);
            let changed = settle(&boosts, borrower);
            follow(&mut boosts, changed.then_some(borrower));
        }
    }
}

/// Ends the loans for `mutex` after `owner` has unlocked it.
pub(crate) fn released(mutex: &RawMutex, owner: u64) {
    let mut boosts = BOOSTS.lock();
    let mut at = boosts.0;
    // SAFETY: links in the list are alive.
    while let Some(link) = unsafe { at.as_ref() } {
        at = link.lend_next.get();
        if ptr::eq(link.mutex, mutex) && link.borrower.get() == owner {
            end(&mut boosts, link);
        }
    }
    settle(&boosts, owner);
}

/// Renews the loan of waiter `id`, which has become the first of its queue while another thread
/// holds the mutex.
pub(crate) fn pressing(id: u64) {
    let mut boosts = BOOSTS.lock();
    follow(&mut boosts, Some(id));
}

/// Renews the loan of the microprocess `next` if it waits for a mutex, then the loan of that
/// mutex's owner, and so on.
fn follow(boosts: &mut List, mut next: Option<u64>) {
    // The chain ends where a priority does not change. The bound stops a cycle of owners, which is
    // a deadlock of the application.
    for _ in 0..1024 {
        let Some(id) = next else { return };
        // While the bucket is locked, the waiter cannot leave and its link stays valid.
        let list = bucket(id).lock();
        let mut at = list.0;
        next = loop {
            // SAFETY: links in the list are alive.
            let Some(link) = (unsafe { at.as_ref() }) else { break None };
            if link.id == id {
                break renew(boosts, link);
            }
            at = link.next.get();
        };
    }
}

/// Updates the waiter's place in its queue, its loan and the owner's priority after a change of the
/// waiter's priority. Returns the owner if the owner's priority has changed.
fn renew(boosts: &mut List, link: &Link) -> Option<u64> {
    let node = link.node();
    let priority = node.waiter.priority();
    let borrower = link.mutex().with_owner(|waiting, owner| {
        if !node.is_linked() {
            return None;
        }
        if node.priority() != priority {
            waiting.queue.reprioritise(node, priority);
        }
        find(owner)?;
        waiting.boosted = true;
        Some(owner)
    });
    if link.borrower.get() != 0 {
        // If the owner has changed, the former owner is about to call `released`, which recomputes
        // its priority.
        end(boosts, link);
    }
    let borrower = borrower.flatten()?;
    begin(boosts, link, borrower, priority);
    settle(boosts, borrower).then_some(borrower)
}

/// Sets the inherited priority of `borrower` to the highest of its loans. Returns whether its
/// effective priority has changed.
fn settle(boosts: &List, borrower: u64) -> bool {
    let Some(waiter) = find(borrower) else { return false };
    let mut inherited = None;
    let mut at = boosts.0;
    // SAFETY: links in the list are alive.
    while let Some(link) = unsafe { at.as_ref() } {
        if link.borrower.get() == borrower {
            inherited = inherited.max(Some(link.lent.get()));
        }
        at = link.lend_next.get();
    }
    let before = waiter.priority();
    waiter.set_inherited(inherited);
    waiter.priority() != before
}

fn begin(boosts: &mut List, link: &Link, borrower: u64, lent: u8) {
    // Incremented before the priority changes: `blocked` reads the two in the opposite order.
    LOANS.fetch_add(1, SeqCst);
    link.borrower.set(borrower);
    link.lent.set(lent);
    link.lend_prev.set(ptr::null());
    link.lend_next.set(boosts.0);
    // SAFETY: links in the list are alive.
    if let Some(n) = unsafe { boosts.0.as_ref() } {
        n.lend_prev.set(link);
    }
    boosts.0 = link;
}

fn end(boosts: &mut List, link: &Link) {
    let (prev, next) = (link.lend_prev.get(), link.lend_next.get());
    // SAFETY: links in the list are alive.
    match unsafe { prev.as_ref() } {
        Some(n) => n.lend_next.set(next),
        None => boosts.0 = next,
    }
    // SAFETY: as above.
    if let Some(n) = unsafe { next.as_ref() } {
        n.lend_prev.set(prev);
    }
    link.borrower.set(0);
    LOANS.fetch_sub(1, SeqCst);
}
