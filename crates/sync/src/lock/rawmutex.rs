//! Mutex without its data: one word, and a wait list for the contended path.
//!
//! The word is 0 when the mutex is free, otherwise the owner's id, plus `WAITERS` if the next
//! unlock must take the wait list's lock. Locking is one compare-and-swap from 0, and unlocking one
//! back to 0. A free word carries `WAITERS` only briefly.
//!
//! The mutex permits barging. An unlock wakes the first waiter but leaves the mutex to the first
//! locker, because a running locker avoids a context switch. While a woken waiter (`pending`) has
//! not run yet, no second waiter is woken and `WAITERS` stays clear, so that other lockers stay on
//! the fast path. The woken waiter sets the bit again when it runs. Barging is bounded: if a waiter
//! was passed over for the first time at least a millisecond ago, the next unlock hands the mutex
//! to it. Waiters of higher priority come first.
//!
//! Memory ordering: lock acquires, unlock releases; a hand-over also goes through the waiter's
//! signal.

use crate::lock::inherit::{self, Link};
use crate::loom::{AtomicU64, NoEvents, Wait, const_fn, current, me, parallel, spin_loop};
use crate::wait::list_lock::ListLock;
use crate::wait::lockrank::Rank;
use crate::wait::waitlist::{self, Claimed, Node, Queue, Signal};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

const WAITERS: u64 = 1 << 63;
/// How long a waiter may be passed over after its first lost race.
pub(crate) const BOUND: Duration =
    if cfg!(loom) { Duration::ZERO } else { Duration::from_millis(1) };
/// Number of attempts on a held lock, some pauses apart, before the locker waits.
pub(crate) const SPINS: u32 = 30;

pub(crate) const OURS: u32 = 1;
pub(crate) const TRY_AGAIN: u32 = 2;

fn owner(word: u64) -> u64 {
    word & !WAITERS
}

/// The word comes last, so that it lies next to the data and mostly in the same cache line. A
/// contended lock then moves one line instead of two.
#[repr(C)]
pub(crate) struct RawMutex {
    waiting: ListLock<MutexWaiters>,
    word: AtomicU64,
}

// Reports read the owner's mark without the lock.
#[cfg(not(loom))]
const _: () = assert!(
    std::mem::offset_of!(RawMutex, word) == kumihimo_runtime::park::lock_layout::MUTEX_OWNER
        && WAITERS == kumihimo_runtime::park::lock_layout::MUTEX_WAITERS
);

pub(crate) struct MutexWaiters {
    pub(crate) queue: Queue,
    /// The waiter that was woken last and has not run yet, and its priority.
    pending: *const Node,
    pending_priority: u8,
    /// Whether a waiter lends its priority to the owner, so that the unlock must end the loan.
    pub(crate) boosted: bool,
}

// SAFETY: `pending` is only compared, never dereferenced.
unsafe impl Send for MutexWaiters {}

impl RawMutex {
    const_fn! {
        pub(crate) fn new() -> RawMutex {
            let waiting = MutexWaiters { queue: Queue::new(), pending: ptr::null(), pending_priority: 0, boosted: false };
            RawMutex { word: AtomicU64::new(0), waiting: ListLock::new(Rank::List, waiting) }
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        let me = me();
        match self.word.compare_exchange(0, me, Acquire, Relaxed) {
            Ok(_) => true,
            Err(w) => owner(w) == 0 && self.take_free(me),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) {
        let me = me();
        if self.word.compare_exchange(0, me, Acquire, Relaxed).is_err() {
            self.lock_slow(me, None);
        }
    }

    /// Returns false if the deadline passed first.
    #[inline]
    pub(crate) fn lock_until(&self, deadline: Instant) -> bool {
        let me = me();
        self.word.compare_exchange(0, me, Acquire, Relaxed).is_ok()
            || self.lock_slow(me, Some(deadline))
    }

    /// # Safety
    /// The caller must hold the lock.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        let word = self.word.load(Relaxed);
        if word & WAITERS != 0 || self.word.compare_exchange(word, 0, Release, Relaxed).is_err() {
            self.unlock_slow();
        }
    }

    /// Takes the lock if it is free. Keeps the `WAITERS` bit.
    fn take_free(&self, me: u64) -> bool {
        let mut word = self.word.load(Relaxed);
        while owner(word) == 0 {
            match self.word.compare_exchange_weak(word, word | me, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(w) => word = w,
            }
        }
        false
    }

    /// Tries to take the lock for a short time, if the owner may be running meanwhile.
    fn spin(&self, me: u64) -> bool {
        for round in 0..SPINS {
            if self.take_free(me) {
                return true;
            }
            if !parallel() {
                return false;
            }
            for _ in 0..1u32 << round.min(2) {
                spin_loop();
            }
        }
        false
    }

    #[cold]
    fn lock_slow(&self, me: u64, deadline: Option<Instant>) -> bool {
        if owner(self.word.load(Relaxed)) == me {
            recursive();
        }
        if self.spin(me) {
            return true;
        }
        let signal = Signal::new();
        // The tag is the word's value after the lock is handed to this waiter.
        let node = Node::with(current(), &signal, ptr::null_mut(), me as usize);
        let link = Link::new(self, &node);
        loop {
            if self.enqueue_or_take(me, &node) {
                return true;
            }
            // SAFETY: `unblocked` follows in this frame, and nothing in between unwinds.
            unsafe { inherit::blocked(&link) };
            let outcome =
                waitlist::wait(&signal, Wait::Mutex(ptr::from_ref(self).addr()), deadline);
            let outcome = outcome.or_else(|| self.withdraw(&node));
            inherit::unblocked(&link);
            match outcome {
                Some(OURS) => return true,
                None => return false,
                Some(_) => {}
            }
            if self.spin(me) {
                // Other waiters left the bit clear because this waiter was pending. It must be set
                // before this lock is released.
                let mut waiting = self.waiting.lock();
                self.arrived(&mut waiting, &node);
                if !waiting.queue.is_empty() {
                    self.word.fetch_or(WAITERS, Relaxed);
                }
                return true;
            }
            if node.passed_over.get().is_none() {
                node.passed_over.set(Some(Instant::now()));
            }
            signal.reset();
        }
    }

    fn arrived(&self, waiting: &mut MutexWaiters, node: &Node) {
        if ptr::eq(waiting.pending, node) {
            waiting.pending = ptr::null();
        }
    }

    /// Under the list's lock: takes the lock if it has become free. Otherwise makes sure that its
    /// owner will wake a waiter, and links the node.
    fn enqueue_or_take(&self, me: u64, node: &Node) -> bool {
        let mut waiting = self.waiting.lock();
        self.arrived(&mut waiting, node);
        loop {
            // A pending waiter of at least this priority sets the bit itself when it runs.
            let relied_on =
                !waiting.pending.is_null() && waiting.pending_priority >= node.priority();
            let word = if relied_on {
                self.word.load(Relaxed)
            } else {
                self.word.fetch_or(WAITERS, Relaxed) | WAITERS
            };
            if owner(word) != 0 {
                // The owner's unlock either observes the bit or is preceded by the pending waiter's
                // arrival.
                // SAFETY: `lock_slow` returns only with the node unlinked: woken, granted or
                // withdrawn.
                unsafe { waiting.queue.insert(node) };
                return false;
            }
            let keep = if waiting.queue.is_empty() { 0 } else { WAITERS };
            if self.word.compare_exchange(word, me | keep, Acquire, Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// Withdraws a waiter whose deadline has passed. Returns an outcome if the waiter was woken or
    /// granted the lock first.
    fn withdraw(&self, node: &Node) -> Option<u32> {
        let mut waiting = self.waiting.lock();
        if waiting.queue.remove(node) {
            return None;
        }
        // SAFETY: the node's signal is on the stack of the caller.
        let outcome = unsafe { &*node.signal() }.get();
        if outcome == Some(OURS) {
            return outcome;
        }
        // The waiter was woken, so it must pass the wake-up on. If the lock is held, its owner does
        // so; if it is free, this thread must.
        self.arrived(&mut waiting, node);
        if waiting.queue.is_empty() {
            return None;
        }
        if owner(self.word.fetch_or(WAITERS, Relaxed)) == 0 {
            let next = self.wake_first(&mut waiting);
            // Another thread may have taken the lock in between. Its word may have the bit set or
            // clear, and both are correct, because the pending waiter sets the bit again.
            let _ = self.word.compare_exchange(WAITERS, 0, Relaxed, Relaxed);
            drop(waiting);
            if let Some(next) = next {
                next.wake();
            }
        } else {
            let first = waiting.queue.first().map(|n| n.tag as u64);
            drop(waiting);
            if let Some(first) = first {
                inherit::pressing(first);
            }
        }
        None
    }

    fn wake_first(&self, waiting: &mut MutexWaiters) -> Option<crate::loom::Waiter> {
        let claimed = waiting.queue.pop()?;
        let (pending, priority) = (ptr::from_ref(claimed.node), claimed.node.priority());
        let waiter = claimed.finish(TRY_AGAIN);
        waiting.pending = pending;
        waiting.pending_priority = priority;
        Some(waiter)
    }

    #[cold]
    fn unlock_slow(&self) {
        // Ending a loan lowers the holder's priority, so that it may be preempted. Without events
        // that cannot happen before the next owner is awake.
        let _quiet = NoEvents::new();
        let mut waiting = self.waiting.lock();
        let me = owner(self.word.load(Relaxed));
        let boosted = std::mem::take(&mut waiting.boosted);
        let overdue = |n: &Node| n.passed_over.get().is_some_and(|since| since.elapsed() >= BOUND);
        let next = if waiting.queue.first().is_some_and(overdue) {
            let heir = waiting.queue.pop().expect("the list is not empty");
            let (node, id) = (ptr::from_ref(heir.node), heir.node.tag as u64);
            // SAFETY: popped and not finished, under the list's lock, so the node is alive.
            let heir = Claimed { node: unsafe { &*node } };
            let keep = if waiting.queue.is_empty() { 0 } else { WAITERS };
            // Stored before the outcome, after which the new owner may unlock.
            self.word.store(id | keep, Release);
            let next = heir.finish(OURS);
            Some(next)
        } else {
            let next = self.wake_first(&mut waiting);
            self.word.store(0, Release);
            next
        };
        drop(waiting);
        if boosted {
            inherit::released(self, me);
        }
        if let Some(next) = next {
            next.wake();
        }
    }

    /// Calls `f` with the wait list and the owner, whose unlock is then certain to take the list's
    /// lock. Returns `None` without waiters or without an owner. For priority inheritance.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn with_owner<R>(&self, f: impl FnOnce(&mut MutexWaiters, u64) -> R) -> Option<R> {
        let mut waiting = self.waiting.lock();
        if waiting.queue.is_empty() {
            return None;
        }
        let id = owner(self.word.fetch_or(WAITERS, AcqRel));
        if id == 0 {
            // The lock is free and a pending waiter is about to set the bit. Barging lockers keep
            // the bit, which is correct too.
            return None;
        }
        Some(f(&mut waiting, id))
    }

    /// Returns the owner's id, or 0 if the lock is free. Other threads may change it at any time,
    /// unless the caller is the owner.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn owner(&self) -> u64 {
        owner(self.word.load(Relaxed))
    }

    /// Whether the mutex is free and no thread waits for it.
    ///
    /// An unlock that has to wake a waiter frees the word under the list's lock and accesses the
    /// mutex no more after it has released that lock. So once this returns true, memory of the
    /// mutex may be freed.
    #[cfg(not(loom))]
    pub(crate) fn is_unused(&self) -> bool {
        let waiting = self.waiting.lock();
        self.word.load(Acquire) == 0 && waiting.queue.is_empty() && waiting.pending.is_null()
    }
}

#[cold]
#[track_caller]
fn recursive() -> ! {
    panic!("this mutex is already locked by the caller: locking it again would wait for ever");
}
