//! Priority inheritance through mutexes.
//!
//! A microprocess that waits for a mutex lends its priority to the owner while it waits; if the
//! owner waits for a mutex in its turn, the loan goes on along the chain. Loans are granted and
//! ended under one global lock, on the contended path and only where priorities differ. Kernel
//! threads lend (they count as 32) but cannot borrow, and end a chain.
//!
//! Two records, both made of nodes on the waiters' stacks: `BLOCKED` finds the mutex that a given
//! microprocess waits for (hashed by id, so that waiting mostly costs one lock that nobody else
//! wants), and `BOOSTS` lists the waiters that lend.
//!
//! Why no loan is missed: a waiter first enters `BLOCKED`, then reads its own priority; a lender
//! first raises the priority of the borrower, then looks it up in `BLOCKED`. One of the two sees
//! the other. Why none is left over: granting sets the mutex's waiters bit, so the owner's unlock
//! comes by [`released`]; a waiter that leaves takes its loan with it.

use crate::lock::rawmutex::RawMutex;
use crate::loom::find;
use crate::wait::list_lock::ListLock;
use crate::wait::lockrank::Rank;
use crate::wait::waitlist::Node;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

/// The part of a blocked locker that inheritance knows. On the waiter's stack, like its node.
pub(crate) struct Link {
    id: u64,
    mutex: *const RawMutex,
    node: *const Node,
    /// The priority under which the node was queued.
    queued_as: u8,
    /// Neighbours in `BLOCKED`, under that bucket's lock.
    prev: Cell<*const Link>,
    next: Cell<*const Link>,
    /// Neighbours in `BOOSTS`, the borrower (0: none) and what is lent, under that lock.
    lend_prev: Cell<*const Link>,
    lend_next: Cell<*const Link>,
    borrower: Cell<u64>,
    lent: Cell<u8>,
}

struct List(*const Link);
// SAFETY: links are followed under the lock around the list only, and leave it under that lock
// before their stack is gone.
unsafe impl Send for List {}

const BUCKETS: usize = 64;
static BLOCKED: [ListLock<List>; BUCKETS] =
    [const { ListLock::new(Rank::Blocked, List(ptr::null())) }; BUCKETS];
static BOOSTS: ListLock<List> = ListLock::new(Rank::Boosts, List(ptr::null()));
/// Number of loans: while it is 0 and the owner's priority is no lower, a waiter need not take the
/// global lock.
static LOANS: AtomicUsize = AtomicUsize::new(0);

fn bucket(id: u64) -> &'static ListLock<List> {
    // The low bits of an id may be constant: mix.
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
        // SAFETY: made from a reference in `new`, and both lie in the same frame of the waiter.
        unsafe { &*self.node }
    }

    fn mutex(&self) -> &RawMutex {
        // SAFETY: the waiter borrows the mutex while its link is in a list.
        unsafe { &*self.mutex }
    }
}

/// The waiter of `link` is queued (unless it was woken meanwhile): record that, and lend if its
/// priority is the higher one.
///
/// # Safety
/// `link` stays where it is until [`unblocked`] has returned for it.
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

/// The waiter of `link` no longer waits: its loan ends.
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

/// `owner` has unlocked `mutex` while somebody lent it a priority for that.
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

/// The waiter with this id has become the first of its queue while somebody else holds the mutex.
pub(crate) fn pressing(id: u64) {
    let mut boosts = BOOSTS.lock();
    follow(&mut boosts, Some(id));
}

/// Renews the loan of that microprocess if it waits for a mutex, then that of its owner, and so on.
fn follow(boosts: &mut List, mut next: Option<u64>) {
    // It ends where a priority stays as it was. The bound is for a ring of owners, a deadlock of
    // the user's.
    for _ in 0..1024 {
        let Some(id) = next else { return };
        // Held while we look at the link: its waiter cannot leave before.
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

/// Makes the waiter's place in its queue, its loan and the owner's priority agree with the waiter's
/// priority. Some: the owner, whose priority has changed.
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
        // If the owner has changed, the old one is on its way into `released` and settles there.
        end(boosts, link);
    }
    let borrower = borrower.flatten()?;
    begin(boosts, link, borrower, priority);
    settle(boosts, borrower).then_some(borrower)
}

/// Sets what `borrower` inherits to the highest of its loans. True: its effective priority has
/// changed.
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
    // Counted before the priority changes: see `blocked`, which looks at the two in the other
    // order.
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
