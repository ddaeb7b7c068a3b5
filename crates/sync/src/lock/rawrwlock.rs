//! The readers-writer lock without its data: one word, and a wait list for the contended path.
//!
//! The word counts readers; `WRITER`: held for writing; `WAITERS`: the thread that frees the lock
//! must look at the wait list, and no new reader may walk in. As the mutex, it barges: waiters are
//! woken, not handed the lock, until one has been passed over for a millisecond. Leading readers
//! are woken together.
//!
//! What keeps waiters from being forgotten, under the list's lock: if the list is not empty, then
//! either some woken ones are on their way (`pending`) and will see to the rest, or `WAITERS` is
//! set and the lock is held, or a thread that freed it is about to take the list's lock.

use crate::lock::rawmutex::{BOUND, OURS, SPINS, TRY_AGAIN};
use crate::loom::{
    AtomicU32, AtomicU64, NoEvents, Wait, Waiter, const_fn, current, me, parallel, spin_loop,
};
use crate::wait::list_lock::{ListLock, ListLockGuard};
use crate::wait::lockrank::Rank;
use crate::wait::waitlist::{self, Node, Queue, Signal};
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

const WAITERS: u32 = 1 << 31;
const WRITER: u32 = 1 << 30;
const READERS: u32 = WRITER - 1;

/// A node's tag.
const READ: usize = 0;
const WRITE: usize = 1;

pub(crate) struct RawRwLock {
    word: AtomicU32,
    /// The writer, to tell a recursive lock from one that can wait; 0: none.
    writer: AtomicU64,
    waiting: ListLock<RwWaiters>,
}

struct RwWaiters {
    queue: Queue,
    /// How many were woken and have not come yet.
    pending: usize,
    pending_priority: u8,
}

/// Those to be woken when the list's lock is released.
type Batch = [Option<Waiter>; 16];

/// Whether the lock is free for this kind of access.
fn free_for(word: u32, kind: usize) -> bool {
    word & if kind == READ { WRITER } else { WRITER | READERS } == 0
}

impl RawRwLock {
    const_fn! {
        pub(crate) fn new() -> RawRwLock {
            let waiting = RwWaiters { queue: Queue::new(), pending: 0, pending_priority: 0 };
            RawRwLock { word: AtomicU32::new(0), writer: AtomicU64::new(0), waiting: ListLock::new(Rank::List, waiting) }
        }
    }

    #[inline]
    pub(crate) fn try_read(&self) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & (WRITER | WAITERS) == 0 {
            match self.word.compare_exchange_weak(word, plus_reader(word), Acquire, Relaxed) {
                Ok(_) => return true,
                Err(w) => word = w,
            }
        }
        false
    }

    #[inline]
    pub(crate) fn try_write(&self) -> bool {
        let taken =
            self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok() || self.take(WRITE);
        if taken {
            self.writer.store(me(), Relaxed);
        }
        taken
    }

    #[inline]
    pub(crate) fn read(&self, deadline: Option<Instant>) -> bool {
        self.try_read() || self.lock_slow(READ, deadline)
    }

    #[inline]
    pub(crate) fn write(&self, deadline: Option<Instant>) -> bool {
        let taken = self.word.compare_exchange(0, WRITER, Acquire, Relaxed).is_ok()
            || self.lock_slow(WRITE, deadline);
        if taken {
            self.writer.store(me(), Relaxed);
        }
        taken
    }

    /// # Safety
    /// The caller holds the lock for reading.
    #[inline]
    pub(crate) unsafe fn unlock_read(&self) {
        if self.word.fetch_sub(1, Release) == 1 | WAITERS {
            self.freed(self.waiting.lock());
        }
    }

    /// # Safety
    /// The caller holds the lock for writing.
    #[inline]
    pub(crate) unsafe fn unlock_write(&self) {
        self.writer.store(0, Relaxed);
        if self.word.compare_exchange(WRITER, 0, Release, Relaxed).is_err() {
            let waiting = self.waiting.lock();
            self.word.fetch_and(!WRITER, Release);
            self.freed(waiting);
        }
    }

    /// # Safety
    /// The caller holds the lock for writing, and now holds it for reading.
    pub(crate) unsafe fn downgrade(&self) {
        self.writer.store(0, Relaxed);
        if self.word.fetch_sub(WRITER - 1, Release) & WAITERS != 0 {
            self.freed(self.waiting.lock());
        }
    }

    /// Takes the lock if it is free for that, overtaking the waiters.
    fn take(&self, kind: usize) -> bool {
        let mut word = self.word.load(Relaxed);
        while free_for(word, kind) {
            let new = if kind == READ { plus_reader(word) } else { word | WRITER };
            match self.word.compare_exchange_weak(word, new, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(w) => word = w,
            }
        }
        false
    }

    #[cold]
    fn lock_slow(&self, kind: usize, deadline: Option<Instant>) -> bool {
        if self.writer.load(Relaxed) == me() {
            recursive();
        }
        for round in 0..SPINS {
            // A reader does not overtake a waiting writer, or writers would starve.
            if if kind == READ { self.try_read() } else { self.take(WRITE) } {
                return true;
            }
            if !parallel() || self.word.load(Relaxed) & WAITERS != 0 {
                break;
            }
            for _ in 0..1u32 << round.min(2) {
                spin_loop();
            }
        }
        let signal = Signal::new();
        let node = Node::with(current(), &signal, ptr::null_mut(), kind);
        let mut waiting = self.waiting.lock();
        let mut woken = false;
        loop {
            if (woken || waiting.queue.is_empty()) && self.take(kind) {
                self.settle(waiting);
                return true;
            }
            // SAFETY: below, the node is unlinked by a waker or by `withdraw` before we go on.
            unsafe { waiting.queue.insert(&node) };
            // It may have become free in between: then we, as the first, are let go here.
            self.settle(waiting);
            let outcome =
                waitlist::wait(&signal, Wait::RwLock(ptr::from_ref(self).addr()), deadline)
                    .or_else(|| self.withdraw(&node, &signal));
            match outcome {
                Some(OURS) => return true,
                None => return false,
                Some(_) => {}
            }
            let taken = self.take(kind);
            waiting = self.waiting.lock();
            waiting.pending -= 1;
            if taken {
                self.settle(waiting);
                return true;
            }
            if node.passed_over.get().is_none() {
                node.passed_over.set(Some(Instant::now()));
            }
            signal.reset();
            woken = true;
        }
    }

    /// The deadline has passed. Some: it was granted the lock before it could leave.
    fn withdraw(&self, node: &Node, signal: &Signal) -> Option<u32> {
        let mut waiting = self.waiting.lock();
        if !waiting.queue.remove(node) {
            if signal.get() == Some(OURS) {
                return Some(OURS);
            }
            waiting.pending -= 1;
        }
        // Those behind it may have been waiting only for it.
        self.settle(waiting);
        None
    }

    /// The lock may have become free: hands it to an overdue waiter, or wakes.
    #[cold]
    fn freed(&self, mut waiting: ListLockGuard<'_, RwWaiters>) {
        let overdue = |n: &Node| n.passed_over.get().is_some_and(|since| since.elapsed() >= BOUND);
        let heir = waiting.queue.first().filter(|n| overdue(n)).map(|n| n.tag);
        if heir.is_some_and(|kind| self.take(kind)) {
            // Taken in its name; from the outcome on it may unlock.
            let heir = waiting.queue.pop().expect("the list is not empty").finish(OURS);
            self.settle(waiting);
            heir.wake();
        } else {
            self.settle(waiting);
        }
    }

    /// Makes word, list and pending ones agree: wakes the first waiters if the lock is free for
    /// them and none is on the way, else sets `WAITERS` so that the thread that frees it comes
    /// here; clears it when none waits.
    fn settle(&self, mut waiting: ListLockGuard<'_, RwWaiters>) {
        let mut batch: Batch = [const { None }; 16];
        let inner = &mut *waiting;
        if let Some(first) = inner.queue.first() {
            let (kind, priority) = (first.tag, first.priority());
            if inner.pending == 0 || priority > inner.pending_priority {
                // Set first, then looked at: a holder that frees it afterwards sees the bit.
                let word = self.word.fetch_or(WAITERS, Relaxed) | WAITERS;
                if free_for(word, kind) {
                    for place in &mut batch {
                        if inner.queue.first().is_none_or(|n| n.tag != kind) {
                            break;
                        }
                        *place = inner.queue.pop().map(|claimed| claimed.finish(TRY_AGAIN));
                        inner.pending += 1;
                        if kind == WRITE {
                            break;
                        }
                    }
                    inner.pending_priority = priority;
                    self.word.fetch_and(!WAITERS, Relaxed);
                }
            }
        } else {
            // Changed under this lock only.
            if self.word.load(Relaxed) & WAITERS != 0 {
                self.word.fetch_and(!WAITERS, Relaxed);
            }
        }
        drop(waiting);
        // All of them are awake before the first one runs.
        let _quiet = NoEvents::new();
        batch.into_iter().flatten().for_each(|waiter| waiter.wake());
    }
}

fn plus_reader(word: u32) -> u32 {
    assert!(word & READERS < READERS, "too many active read locks on RwLock");
    word + 1
}

#[cold]
#[track_caller]
fn recursive() -> ! {
    panic!(
        "this lock is already held for writing by the caller: locking it again would wait for ever"
    );
}
