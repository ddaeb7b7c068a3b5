//! The wait list that every blocking type of this crate stands on.
//!
//! A waiter's [`Node`] lies on the waiter's own stack and is linked into the [`Queue`] under the
//! spin lock of the object it waits for: waiting allocates nothing. The queue is ordered by
//! priority, highest first, then first come first served. The waiter's [`Signal`] says how the wait
//! ended. The thread that ends it takes the node out of the queue, fills the node's slot if there
//! is one, clones the [`Waiter`], and stores the outcome *last*, all under the object's spin lock:
//! from that store on the waiter may return and its stack be gone. A waiter that gives up
//! (deadline, cancellation) takes the same lock to remove itself, so it either finds its node still
//! linked, or the outcome already there.
//!
//! Memory ordering: the outcome is stored with release and read with acquire; what the waker did
//! before it happens before what the woken one does.

use crate::loom::{AtomicU32, Wait, Waiter, const_fn, current, park, point, spin_loop, yield_now};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

const WAITING: u32 = 0;
/// The waker has won this waiter but is still filling its slot.
const FILLING: u32 = u32::MAX;
/// The outcome where only "woken" has to be said.
pub(crate) const WOKEN: u32 = 1;

/// How a wait ended: nothing yet, or a small number that the waker chose.
pub(crate) struct Signal(AtomicU32);

impl Signal {
    const_fn! {
        pub(crate) fn new() -> Signal {
            Signal(AtomicU32::new(WAITING))
        }
    }

    /// The outcome, if it is there.
    #[inline]
    pub(crate) fn get(&self) -> Option<u32> {
        let mut turns = 0u32;
        loop {
            match self.0.load(Acquire) {
                WAITING => return None,
                FILLING => {
                    // A few instructions of the waker, under its spin lock.
                    turns += 1;
                    if cfg!(loom) || turns.is_multiple_of(128) { yield_now() } else { spin_loop() }
                }
                outcome => return Some(outcome),
            }
        }
    }

    /// Makes the signal fit for another wait. Only the waiter calls it, unlinked.
    pub(crate) fn reset(&self) {
        self.0.store(WAITING, Relaxed);
    }

    /// The waiter itself ends the wait: true unless a waker came first.
    pub(crate) fn give_up(&self) -> bool {
        self.0.compare_exchange(WAITING, WOKEN, Acquire, Acquire).is_ok()
    }
}

/// Waits for `signal`. None: the deadline has passed and the caller must withdraw its node. Not a
/// cancellation point.
pub(crate) fn wait(signal: &Signal, why: Wait, deadline: Option<Instant>) -> Option<u32> {
    loop {
        if let Some(outcome) = signal.get() {
            return Some(outcome);
        }
        if deadline.is_some_and(|d| Instant::now() >= d) {
            return None;
        }
        park(why, deadline);
    }
}

/// As [`wait`], but unwinds if the caller is cancelled before the signal comes. The caller holds a
/// guard that withdraws the node on drop. A signal that is already there wins over a cancel
/// request: nothing handed over is lost.
// Inlined, so that `why` is not copied right after it was written in pieces: such a load waits for
// the stores.
#[inline(always)]
pub(crate) fn wait_cancellable(
    signal: &Signal,
    why: Wait,
    deadline: Option<Instant>,
) -> Option<u32> {
    loop {
        if let Some(outcome) = signal.get() {
            return Some(outcome);
        }
        point();
        if deadline.is_some_and(|d| Instant::now() >= d) {
            return None;
        }
        park(why, deadline);
    }
}

/// A waiter's node, on the waiter's stack. The cells are changed under the lock of the queue only.
pub(crate) struct Node {
    pub(crate) waiter: Waiter,
    signal: *const Signal,
    /// Several nodes share the signal (a select): a waker must win it first.
    shared: bool,
    /// Where the waker takes a value from, or puts one; what it is, is the queue's business.
    pub(crate) slot: *mut (),
    /// A number for the queue's owner: permits wanted, read or write, number of the select arm.
    pub(crate) tag: usize,
    /// When this waiter was first passed over by a barging locker.
    pub(crate) passed_over: Cell<Option<Instant>>,
    priority: Cell<u8>,
    /// Place among equals; 0 before the first insertion. Kept when a waiter that lost a race queues
    /// again.
    turn: Cell<u64>,
    linked: Cell<bool>,
    prev: Cell<*const Node>,
    next: Cell<*const Node>,
}

impl Node {
    pub(crate) fn new(signal: &Signal) -> Node {
        Node::with(current(), signal, ptr::null_mut(), 0)
    }

    pub(crate) fn with(waiter: Waiter, signal: &Signal, slot: *mut (), tag: usize) -> Node {
        let priority = waiter.priority();
        Node {
            waiter,
            signal,
            shared: false,
            slot,
            tag,
            passed_over: Cell::new(None),
            priority: Cell::new(priority),
            turn: Cell::new(0),
            linked: Cell::new(false),
            prev: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
        }
    }

    /// One of several nodes of a select.
    pub(crate) fn shared(mut self) -> Node {
        self.shared = true;
        self
    }

    pub(crate) fn signal(&self) -> *const Signal {
        self.signal
    }

    /// Returns when the outcome is there. Somebody has taken the node and is a few instructions
    /// away from storing it.
    #[cold]
    pub(crate) fn await_outcome(&self) {
        // SAFETY: the waiter's own node, and its signal lies beside it.
        let signal = unsafe { &*self.signal };
        let mut turns = 0u32;
        while signal.get().is_none() {
            turns += 1;
            if cfg!(loom) || turns.is_multiple_of(128) { yield_now() } else { spin_loop() }
        }
    }

    pub(crate) fn priority(&self) -> u8 {
        self.priority.get()
    }

    pub(crate) fn turn(&self) -> u64 {
        self.turn.get()
    }

    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn is_linked(&self) -> bool {
        self.linked.get()
    }

    /// Wins the right to end this wait. Only a node of a select can be lost to somebody else.
    fn claim(&self) -> bool {
        // SAFETY: a node's signal outlives its being linked, and we are called under the queue's
        // lock with a linked node.
        let signal = unsafe { &*self.signal };
        !self.shared || signal.0.compare_exchange(WAITING, FILLING, Relaxed, Relaxed).is_ok()
    }
}

/// A node that was taken out of its queue and whose wait is ours to end. Borrows the queue, hence
/// lives under its lock only.
#[must_use]
pub(crate) struct Claimed<'a> {
    pub(crate) node: &'a Node,
}

impl Claimed<'_> {
    /// Stores the outcome, the last access to the node. The caller wakes the waiter after it has
    /// released the lock.
    #[must_use]
    pub(crate) fn finish(self, outcome: u32) -> Waiter {
        let waiter = self.node.waiter.clone();
        // SAFETY: the waiter returns only after this store, or after taking the lock that we hold.
        unsafe { &*self.node.signal }.0.store(outcome, Release);
        waiter
    }
}

/// The waiters of one object. Lives inside the object's spin lock.
pub(crate) struct Queue {
    head: *const Node,
    tail: *const Node,
    turns: u64,
}

// SAFETY: the nodes it points to are used only under the lock around the queue, or by their waiter
// after the outcome is there.
unsafe impl Send for Queue {}

impl Queue {
    pub(crate) const fn new() -> Queue {
        Queue { head: ptr::null(), tail: ptr::null(), turns: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&Node> {
        // SAFETY: linked nodes are alive, see `insert`.
        unsafe { self.head.as_ref() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            // SAFETY: linked nodes are alive, see `insert`.
            let node = unsafe { at.as_ref() }?;
            at = node.next.get();
            Some(node)
        })
    }

    /// Links `node` behind all of its own and higher priority; a node that was linked before takes
    /// its old place again.
    ///
    /// # Safety
    /// The node and its signal stay where they are until the node is unlinked, by a waker or by
    /// [`Queue::remove`].
    #[inline]
    pub(crate) unsafe fn insert(&mut self, node: &Node) {
        debug_assert!(!node.linked.get());
        let (before, after);
        if node.turn.get() == 0 {
            self.turns += 1;
            node.turn.set(self.turns);
            let mut at = self.tail;
            // SAFETY: linked nodes are alive; null ends the walk.
            while let Some(n) = unsafe { at.as_ref() } {
                if n.priority.get() >= node.priority.get() {
                    break;
                }
                at = n.prev.get();
            }
            before = at;
            // SAFETY: as above.
            after = unsafe { at.as_ref() }.map_or(self.head, |n| n.next.get());
        } else {
            let mut at = self.head;
            // SAFETY: as above.
            while let Some(n) = unsafe { at.as_ref() } {
                let (p, q) = (n.priority.get(), node.priority.get());
                if p < q || p == q && n.turn.get() > node.turn.get() {
                    break;
                }
                at = n.next.get();
            }
            after = at;
            // SAFETY: as above.
            before = unsafe { at.as_ref() }.map_or(self.tail, |n| n.prev.get());
        }
        node.prev.set(before);
        node.next.set(after);
        // SAFETY: as above.
        match unsafe { before.as_ref() } {
            Some(n) => n.next.set(node),
            None => self.head = node,
        }
        // SAFETY: as above.
        match unsafe { after.as_ref() } {
            Some(n) => n.prev.set(node),
            None => self.tail = node,
        }
        node.linked.set(true);
    }

    /// Links `node` as the last, whatever its priority. Returns its turn, unique in this queue.
    ///
    /// # Safety
    /// As [`Queue::insert`].
    #[inline]
    pub(crate) unsafe fn insert_last(&mut self, node: &Node) -> u64 {
        debug_assert!(!node.linked.get());
        self.turns += 1;
        node.turn.set(self.turns);
        node.prev.set(self.tail);
        node.next.set(ptr::null());
        // SAFETY: linked nodes are alive.
        match unsafe { self.tail.as_ref() } {
            Some(n) => n.next.set(node),
            None => self.head = node,
        }
        self.tail = node;
        node.linked.set(true);
        self.turns
    }

    /// Unlinks `node`, which is linked in this queue or in none. False: in none.
    #[inline]
    pub(crate) fn remove(&mut self, node: &Node) -> bool {
        if !node.linked.get() {
            return false;
        }
        let (prev, next) = (node.prev.get(), node.next.get());
        // SAFETY: linked nodes and their neighbours are alive.
        match unsafe { prev.as_ref() } {
            Some(n) => n.next.set(next),
            None => self.head = next,
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            Some(n) => n.prev.set(prev),
            None => self.tail = prev,
        }
        node.linked.set(false);
        true
    }

    /// Puts a linked node where its new priority belongs.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn reprioritise(&mut self, node: &Node, priority: u8) {
        if self.remove(node) {
            node.priority.set(priority);
            // SAFETY: it was linked until now, so the thread that linked it keeps it alive.
            unsafe { self.insert(node) };
        }
    }

    /// Takes out the first waiter whose wait is ours to end.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Claimed<'_>> {
        loop {
            // SAFETY: linked nodes are alive, and stay so until their waiter sees the outcome or
            // takes the lock we are under.
            let node = unsafe { self.head.as_ref() }?;
            let won = node.claim();
            self.remove(node);
            if won {
                return Some(Claimed { node });
            }
        }
    }

    /// The number of insertions so far.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// As `pop`, but passes by those that queued after `limit`. For queues without select nodes.
    pub(crate) fn pop_up_to(&mut self, limit: u64) -> Option<Claimed<'_>> {
        let node: *const Node = self.iter().find(|n| n.turn.get() <= limit)?;
        // SAFETY: linked, hence alive, and we are under the lock.
        Some(self.take(unsafe { &*node }))
    }

    /// Takes out a certain linked waiter of a queue without select nodes.
    pub(crate) fn take<'a>(&mut self, node: &'a Node) -> Claimed<'a> {
        debug_assert!(!node.shared && node.linked.get());
        self.remove(node);
        Claimed { node }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn priority_then_turn() {
        let signals: Vec<Signal> = (0..6).map(|_| Signal::new()).collect();
        let nodes: Vec<Node> = signals.iter().map(Node::new).collect();
        for (node, p) in nodes.iter().zip([32, 40, 32, 63, 0, 40]) {
            node.priority.set(p);
        }
        let mut queue = Queue::new();
        for node in &nodes {
            // SAFETY: `nodes` outlives `queue`'s use of it.
            unsafe { queue.insert(node) };
        }
        let place = |n: &Node| nodes.iter().position(|m| ptr::eq(m, n)).unwrap();
        assert_eq!(queue.iter().map(place).collect::<Vec<_>>(), [3, 1, 5, 0, 2, 4]);
        // One that lost its race takes its old place among equals.
        assert!(queue.remove(&nodes[1]));
        assert!(!queue.remove(&nodes[1]));
        // SAFETY: as above.
        unsafe { queue.insert(&nodes[1]) };
        assert_eq!(queue.iter().map(place).collect::<Vec<_>>(), [3, 1, 5, 0, 2, 4]);
        queue.reprioritise(&nodes[2], 50);
        assert_eq!(queue.iter().map(place).collect::<Vec<_>>(), [3, 2, 1, 5, 0, 4]);
        let mut order = Vec::new();
        while let Some(claimed) = queue.pop() {
            order.push(place(claimed.node));
            let _ = claimed.finish(WOKEN);
        }
        assert_eq!(order, [3, 2, 1, 5, 0, 4]);
        assert!(signals.iter().all(|s| s.get() == Some(WOKEN)));
    }

    #[test]
    fn a_select_is_won_once() {
        let signal = Signal::new();
        let (a, b) = (Node::new(&signal).shared(), Node::new(&signal).shared());
        let (mut p, mut q) = (Queue::new(), Queue::new());
        // SAFETY: the nodes outlive the queues' use of them.
        unsafe {
            p.insert(&a);
            q.insert(&b);
        }
        let _ = p.pop().unwrap().finish(7);
        assert!(q.pop().is_none());
        assert!(!b.is_linked());
        assert_eq!(signal.get(), Some(7));
        assert!(!signal.give_up());
    }
}
