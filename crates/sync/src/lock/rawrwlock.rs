//! Readers-writer lock without its data: one word, and a wait list for the contended path.
//!
//! The word counts readers. `WRITER` is set while the lock is held for writing. `WAITERS` means
//! that the thread that frees the lock must take the wait list's lock, and that no new reader may
//! enter. Like the mutex, the lock permits barging: waiters are woken rather than handed the lock,
//! until one was passed over for a millisecond. Consecutive readers at the head of the list are
//! woken together.
//!
//! Invariant that keeps waiters from being lost, under the list's lock. If the list is not empty,
//! one of these holds: some woken waiters have not run yet (`pending`) and will wake the rest;
//! `WAITERS` is set and the lock is held; or a thread that has freed the lock is about to take the
//! list's lock.

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

/// Tags of nodes: the requested access.
const READ: usize = 0;
const WRITE: usize = 1;

#[repr(C)]
pub(crate) struct RawRwLock {
    /// Mark of the writer, by which a recursive lock is detected; 0 if there is none.
    writer: AtomicU64,
    word: AtomicU32,
    waiting: ListLock<RwWaiters>,
}

// Reports read the writer's mark and the number of readers without the lock.
#[cfg(not(loom))]
const _: () = assert!(
    std::mem::offset_of!(RawRwLock, writer) == kumihimo_runtime::park::lock_layout::RWLOCK_WRITER
        && std::mem::offset_of!(RawRwLock, word)
            == kumihimo_runtime::park::lock_layout::RWLOCK_WORD
        && READERS == kumihimo_runtime::park::lock_layout::RWLOCK_READERS
);

struct RwWaiters {
    queue: Queue,
    /// Number of waiters that were woken and have not run yet.
    pending: usize,
    pending_priority: u8,
}

/// Waiters to wake after the list's lock is released.
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
    /// The caller must hold the lock for reading.
    #[inline]
    pub(crate) unsafe fn unlock_read(&self) {
        if self.word.fetch_sub(1, Release) == 1 | WAITERS {
            self.freed(self.waiting.lock());
        }
    }

    /// # Safety
    /// The caller must hold the lock for writing.
    #[inline]
    pub(crate) unsafe fn unlock_write(&self) {
        self.writer.store(0, Relaxed);
        if self.word.compare_exchange(WRITER, 0, Release, Relaxed).is_err() {
            let waiting = self.waiting.lock();
            self.word.fetch_and(!WRITER, Release);
            self.freed(waiting);
        }
    }

    /// Turns a write lock into a read lock.
    ///
    /// # Safety
    /// The caller must hold the lock for writing; afterwards it holds the lock for reading.
    pub(crate) unsafe fn downgrade(&self) {
        self.writer.store(0, Relaxed);
        if self.word.fetch_sub(WRITER - 1, Release) & WAITERS != 0 {
            self.freed(self.waiting.lock());
        }
    }

    /// Returns the mark of the writer, or 0. Other threads may change it at any time, unless the
    /// caller is the writer.
    #[cfg(not(loom))]
    pub(crate) fn writer(&self) -> u64 {
        self.writer.load(Relaxed)
    }

    /// Returns the number of readers that hold the lock.
    #[cfg(not(loom))]
    pub(crate) fn readers(&self) -> u32 {
        self.word.load(Relaxed) & READERS
    }

    /// Whether no thread holds the lock or waits for it.
    #[cfg(not(loom))]
    pub(crate) fn is_unused(&self) -> bool {
        let waiting = self.waiting.lock();
        self.word.load(Acquire) == 0 && waiting.queue.is_empty() && waiting.pending == 0
    }

    /// Takes the lock if it is free for this access, ahead of the waiters.
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
            // A reader must not overtake a waiting writer, or writers would starve.
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
            // SAFETY: a waker or `withdraw` unlinks the node before this frame continues.
            unsafe { waiting.queue.insert(&node) };
            // The lock may have become free since the last attempt; this waiter, if first, is then
            // woken here.
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

    /// Withdraws a waiter whose deadline has passed. Returns an outcome if it was granted the lock
    /// first.
    fn withdraw(&self, node: &Node, signal: &Signal) -> Option<u32> {
        let mut waiting = self.waiting.lock();
        if !waiting.queue.remove(node) {
            if signal.get() == Some(OURS) {
                return Some(OURS);
            }
            waiting.pending -= 1;
        }
        // The waiters behind this one may have been held up by it alone.
        self.settle(waiting);
        None
    }

    /// Hands the lock, which may have become free, to an overdue waiter, or wakes the first
    /// waiters.
    #[cold]
    fn freed(&self, mut waiting: ListLockGuard<'_, RwWaiters>) {
        let overdue = |n: &Node| n.passed_over.get().is_some_and(|since| since.elapsed() >= BOUND);
        let heir = waiting.queue.first().filter(|n| overdue(n)).map(|n| n.tag);
        if heir.is_some_and(|kind| self.take(kind)) {
            // The lock is taken on behalf of the waiter, which may unlock as soon as it has its
            // outcome.
            let heir = waiting.queue.pop().expect("the list is not empty").finish(OURS);
            self.settle(waiting);
            heir.wake();
        } else {
            self.settle(waiting);
        }
    }

    /// Restores the invariant of word, list and pending waiters. Wakes the first waiters if the
    /// lock is free for them and none is pending. Otherwise sets `WAITERS`, so that the thread that
    /// frees the lock comes here. Clears the bit if no thread waits.
    fn settle(&self, mut waiting: ListLockGuard<'_, RwWaiters>) {
        let mut batch: Batch = [const { None }; 16];
        let inner = &mut *waiting;
        if let Some(first) = inner.queue.first() {
            let (kind, priority) = (first.tag, first.priority());
            if inner.pending == 0 || priority > inner.pending_priority {
                // The bit is set before the word is checked, so a holder that frees the lock later
                // observes it.
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
            // The bit changes under this lock only.
            if self.word.load(Relaxed) & WAITERS != 0 {
                self.word.fetch_and(!WAITERS, Relaxed);
            }
        }
        drop(waiting);
        // Without events no woken waiter runs on this VP before the whole batch is awake.
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
