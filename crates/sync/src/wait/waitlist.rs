//! Wait list that every blocking type of this crate uses.
//!
//! A waiter's [`Node`] lies on the waiter's own stack and is linked into the [`Queue`] of the
//! object for which it waits. Linking happens under the object's spin lock and allocates nothing.
//! The queue is ordered by priority, highest first, then by arrival. The waiter's [`Signal`] holds
//! the outcome of the wait.
//!
//! The waking thread takes the node out of the queue, fills the node's slot if there is one, clones
//! the [`Waiter`], and stores the outcome *last*. All of this happens under the object's spin lock.
//! After the store the waiter may return, and its stack frame may be gone. A waiter that gives up,
//! by deadline or cancellation, takes the same lock to remove its node. It therefore finds either
//! its node still linked or the outcome already stored.
//!
//! Memory ordering: the outcome is stored with release and loaded with acquire, so the waker's
//! earlier writes happen before everything that the woken thread does next.

use crate::loom::{AtomicU32, Wait, Waiter, const_fn, current, park, point, spin_loop, yield_now};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

const WAITING: u32 = 0;
/// The waker has won the signal but has not stored the outcome yet.
const FILLING: u32 = u32::MAX;
/// Outcome of a wait that needs no further distinction.
pub(crate) const WOKEN: u32 = 1;

/// Outcome of a wait: none yet, or a small number that the waker chose.
pub(crate) struct Signal(AtomicU32);

impl Signal {
    const_fn! {
        pub(crate) fn new() -> Signal {
            Signal(AtomicU32::new(WAITING))
        }
    }

    /// Returns the outcome if it is stored.
    #[inline]
    pub(crate) fn get(&self) -> Option<u32> {
        let mut turns = 0u32;
        loop {
            match self.0.load(Acquire) {
                WAITING => return None,
                FILLING => {
                    // The waker is a few instructions from storing the outcome, under its spin
                    // lock.
                    turns += 1;
                    if cfg!(loom) || turns.is_multiple_of(128) { yield_now() } else { spin_loop() }
                }
                outcome => return Some(outcome),
            }
        }
    }

    /// Prepares the signal for another wait. Called by the waiter only, while its node is unlinked.
    pub(crate) fn reset(&self) {
        self.0.store(WAITING, Relaxed);
    }

    /// Ends the wait from the waiter's side. Returns false if a waker came first.
    pub(crate) fn give_up(&self) -> bool {
        self.0.compare_exchange(WAITING, WOKEN, Acquire, Acquire).is_ok()
    }
}

/// Waits for `signal`. Returns `None` if the deadline has passed; the caller must then withdraw its
/// node. Not a cancellation point.
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

/// Waits like [`wait`], but unwinds if the caller is cancelled before the signal is set. The caller
/// holds a guard that withdraws the node on drop. A signal that is already set takes precedence
/// over a cancel request, so nothing handed over is lost.
// Inlined, so that `why` is not copied right after it was written in smaller pieces: such a load
// stalls until the stores retire (failed store-to-load forwarding).
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

/// Node of a waiter, on the waiter's stack. Its cells change only under the lock of the queue.
pub(crate) struct Node {
    pub(crate) waiter: Waiter,
    signal: *const Signal,
    /// Whether several nodes share the signal, as in a select. A waker must then win the signal
    /// first.
    shared: bool,
    /// Location from which the waker takes a value, or to which it writes one. The type is known to
    /// the queue's owner only.
    pub(crate) slot: *mut (),
    /// Number for the queue's owner: requested permits, read or write access, or the number of a
    /// select arm.
    pub(crate) tag: usize,
    /// Time at which a barging locker first passed this waiter over.
    pub(crate) passed_over: Cell<Option<Instant>>,
    priority: Cell<u8>,
    /// Position among waiters of equal priority; 0 before the first insertion. Kept when a waiter
    /// that lost a race queues again.
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

    /// Marks the node as one of several nodes of a select.
    pub(crate) fn shared(mut self) -> Node {
        self.shared = true;
        self
    }

    pub(crate) fn signal(&self) -> *const Signal {
        self.signal
    }

    /// Returns once the outcome is stored. Another thread has claimed the node and is a few
    /// instructions from storing it.
    #[cold]
    pub(crate) fn await_outcome(&self) {
        // SAFETY: called by the waiter, on whose stack the signal lies.
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

    /// Wins the right to end this wait. Fails only for a node of a select whose signal another
    /// thread has won.
    fn claim(&self) -> bool {
        // SAFETY: a signal outlives the linking of its node, and the caller holds the queue's lock
        // with the node linked.
        let signal = unsafe { &*self.signal };
        !self.shared || signal.0.compare_exchange(WAITING, FILLING, Relaxed, Relaxed).is_ok()
    }
}

/// Node that was taken out of its queue and whose wait the holder must end. Borrows the queue, so
/// it exists only under the queue's lock.
#[must_use]
pub(crate) struct Claimed<'a> {
    pub(crate) node: &'a Node,
}

impl Claimed<'_> {
    /// Stores the outcome, which is the last access to the node. The caller wakes the returned
    /// waiter after it has released the lock.
    #[must_use]
    pub(crate) fn finish(self, outcome: u32) -> Waiter {
        let waiter = self.node.waiter.clone();
        // SAFETY: the waiter returns only after this store, or after taking the lock that the
        // caller holds.
        unsafe { &*self.node.signal }.0.store(outcome, Release);
        waiter
    }
}

/// Waiters of one object. Lies inside the object's spin lock.
pub(crate) struct Queue {
    head: *const Node,
    tail: *const Node,
    turns: u64,
}

// SAFETY: the nodes are accessed only under the lock around the queue, or by their waiter after the
// outcome is stored.
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

    /// Links `node` behind all nodes of equal or higher priority. A node that was linked before
    /// takes its former position again.
    ///
    /// # Safety
    /// The node and its signal must not move until the node is unlinked, by a waker or by
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

    /// Links `node` as the last node, regardless of priority. Returns its turn, which is unique in
    /// this queue.
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

    /// Unlinks `node`, which must be linked in this queue or in none. Returns false if it was in
    /// none.
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

    /// Moves a linked node to the position of its new priority.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn reprioritise(&mut self, node: &Node, priority: u8) {
        if self.remove(node) {
            node.priority.set(priority);
            // SAFETY: the node was linked until now, so the thread that linked it keeps it alive.
            unsafe { self.insert(node) };
        }
    }

    /// Unlinks the first waiter whose wait the caller has won the right to end.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Claimed<'_>> {
        loop {
            // SAFETY: a linked node stays alive until its waiter finds the outcome or takes the
            // lock that the caller holds.
            let node = unsafe { self.head.as_ref() }?;
            let won = node.claim();
            self.remove(node);
            if won {
                return Some(Claimed { node });
            }
        }
    }

    /// Returns the number of insertions so far.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// Unlinks the first waiter whose turn is at most `limit`. For queues without select nodes.
    pub(crate) fn pop_up_to(&mut self, limit: u64) -> Option<Claimed<'_>> {
        let node: *const Node = self.iter().find(|n| n.turn.get() <= limit)?;
        // SAFETY: the node is linked, hence alive, and the caller holds the lock.
        Some(self.take(unsafe { &*node }))
    }

    /// Unlinks the given linked waiter of a queue without select nodes.
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
    fn queue_orders_by_priority_then_turn() {
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
        // A waiter that lost its race takes its former position among equals.
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
    fn select_signal_is_won_once() {
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
