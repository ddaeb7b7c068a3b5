//! Counting permits.

use crate::loom::{AtomicUsize, NoEvents, Wait, Waiter, const_fn, current};
use crate::wait::deadline;
use crate::wait::list_lock::{ListLock, ListLockGuard};
use crate::wait::lockrank::Rank;
use crate::wait::waitlist::{self, Node, Queue, Signal, WOKEN};
use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// The lowest bit of the word: somebody waits, so nobody may help himself. The permits stand above
/// it.
const WAITERS: usize = 1;
const ONE: usize = 2;

/// A counting semaphore for microprocesses and kernel threads alike, mixed.
///
/// `acquire` takes permits and *blocks* the microprocess (or kernel thread) until there are enough;
/// it is a *cancellation point* where it has to wait. Permits come back when the
/// [`SemaphorePermit`] is dropped, or by [`add_permits`](Semaphore::add_permits).
///
/// Order of waiters: higher priority first, then first come first served, with no overtaking: a
/// request for many permits is not starved by requests for one.
///
/// Memory ordering: giving a permit back *happens before* its next acquisition.
///
/// ```
/// use kumihimo_sync::Semaphore;
/// static CONNECTIONS: Semaphore = Semaphore::new(2);
/// let first = CONNECTIONS.acquire();
/// let second = CONNECTIONS.acquire();
/// assert!(CONNECTIONS.try_acquire().is_none());
/// drop(first);
/// assert!(CONNECTIONS.try_acquire().is_some());
/// # drop(second);
/// ```
pub struct Semaphore {
    word: AtomicUsize,
    queue: ListLock<Queue>,
}

/// Permits taken from a [`Semaphore`]; dropping gives them back.
#[must_use = "if unused the permit is given back at once"]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    count: usize,
}

impl Semaphore {
    /// The most permits that a semaphore can hold.
    pub const MAX_PERMITS: usize = usize::MAX >> 1;

    const_fn! {
        /// A semaphore with that many permits.
        ///
        /// # Panics
        /// If that is more than [`MAX_PERMITS`](Semaphore::MAX_PERMITS).
        pub fn new(permits: usize) -> Semaphore {
            assert!(permits <= Semaphore::MAX_PERMITS, "a semaphore cannot hold that many permits");
            Semaphore { word: AtomicUsize::new(permits * ONE), queue: ListLock::new(Rank::List, Queue::new()) }
        }
    }

    /// How many permits are there; out of date at once.
    pub fn available_permits(&self) -> usize {
        self.word.load(Relaxed) / ONE
    }

    /// Takes one permit; blocks until there is one.
    pub fn acquire(&self) -> SemaphorePermit<'_> {
        self.acquire_many(1)
    }

    /// Takes `count` permits, all at once; blocks until there are that many. More than will ever be
    /// there: blocks for ever.
    pub fn acquire_many(&self, count: usize) -> SemaphorePermit<'_> {
        self.take(count, None);
        SemaphorePermit { semaphore: self, count }
    }

    /// Takes one permit if that is possible at once, without overtaking the waiters.
    pub fn try_acquire(&self) -> Option<SemaphorePermit<'_>> {
        self.try_acquire_many(1)
    }

    /// Takes `count` permits if that is possible at once, without overtaking the waiters.
    pub fn try_acquire_many(&self, count: usize) -> Option<SemaphorePermit<'_>> {
        self.take_free(count).then(|| SemaphorePermit { semaphore: self, count })
    }

    /// Takes one permit, or gives up after `timeout`.
    pub fn acquire_timeout(&self, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        self.acquire_limited(1, deadline::after(timeout))
    }

    /// Takes one permit, or gives up at `deadline`.
    pub fn acquire_until(&self, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        self.acquire_limited(1, Some(deadline))
    }

    /// Takes `count` permits, or gives up after `timeout`.
    pub fn acquire_many_timeout(
        &self,
        count: usize,
        timeout: Duration,
    ) -> Option<SemaphorePermit<'_>> {
        self.acquire_limited(count, deadline::after(timeout))
    }

    /// Takes `count` permits, or gives up at `deadline`.
    pub fn acquire_many_until(
        &self,
        count: usize,
        deadline: Instant,
    ) -> Option<SemaphorePermit<'_>> {
        self.acquire_limited(count, Some(deadline))
    }

    /// Adds permits. Waiters are served first.
    ///
    /// # Panics
    /// If the sum is more than [`MAX_PERMITS`](Semaphore::MAX_PERMITS); nothing is added then.
    pub fn add_permits(&self, count: usize) {
        let mut word = self.word.load(Relaxed);
        while word & WAITERS == 0 {
            let sum = (word / ONE).checked_add(count).filter(|&n| n <= Semaphore::MAX_PERMITS);
            let sum = sum.expect("a semaphore cannot hold that many permits");
            // The bit is off, so nobody waits, and nobody begins to without changing the word.
            match self.word.compare_exchange_weak(word, sum * ONE, Release, Relaxed) {
                Ok(_) => return,
                Err(w) => word = w,
            }
        }
        self.add_and_serve(count);
    }

    fn acquire_limited(
        &self,
        count: usize,
        deadline: Option<Instant>,
    ) -> Option<SemaphorePermit<'_>> {
        self.take(count, deadline).then(|| SemaphorePermit { semaphore: self, count })
    }

    fn take_free(&self, count: usize) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & WAITERS == 0 && word / ONE >= count {
            match self.word.compare_exchange_weak(word, word - count * ONE, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(w) => word = w,
            }
        }
        false
    }

    fn take(&self, count: usize, deadline: Option<Instant>) -> bool {
        self.take_free(count) || self.take_slow(count, deadline)
    }

    #[cold]
    fn take_slow(&self, count: usize, deadline: Option<Instant>) -> bool {
        let signal = Signal::new();
        let node = Node::with(current(), &signal, ptr::null_mut(), count);
        let mut queue = self.queue.lock();
        // From here on permits change under the lock only.
        let word = self.word.fetch_or(WAITERS, Acquire);
        if word & WAITERS == 0 && word / ONE >= count {
            // Release: hands on what the threads that gave the rest back did before.
            self.word.store(word - count * ONE, Release);
            return true;
        }
        // SAFETY: unlinked by a waker, by `SemaphoreWithdrawal` on unwinding, or by `withdraw`
        // below.
        unsafe { queue.insert(&node) };
        // A higher priority may be served before those it has just passed.
        self.serve_all(queue);
        let withdraw = SemaphoreWithdrawal { semaphore: self, node: &node };
        let outcome = waitlist::wait_cancellable(
            &signal,
            Wait::Semaphore(ptr::from_ref(self).addr()),
            deadline,
        );
        std::mem::forget(withdraw);
        outcome.is_some() || !self.withdraw(&node)
    }

    /// True if the node was still queued. Those behind it may have been waiting only for it.
    fn withdraw(&self, node: &Node) -> bool {
        let mut queue = self.queue.lock();
        let queued = queue.remove(node);
        if queued {
            self.serve_all(queue);
        }
        queued
    }

    #[cold]
    fn add_and_serve(&self, count: usize) {
        let queue = self.queue.lock();
        let mut word = self.word.load(Relaxed);
        loop {
            let sum = (word / ONE).checked_add(count).filter(|&n| n <= Semaphore::MAX_PERMITS);
            let Some(sum) = sum else {
                drop(queue);
                panic!("a semaphore cannot hold that many permits");
            };
            // The bit may have gone off meanwhile, and others be changing the word.
            match self.word.compare_exchange_weak(
                word,
                (sum * ONE) | (word & WAITERS),
                Release,
                Relaxed,
            ) {
                Ok(_) => break,
                Err(w) => word = w,
            }
        }
        self.serve_all(queue);
    }

    /// Hands permits to the first waiters as far as they go, a batch at a time, and wakes them
    /// without the lock.
    fn serve_all<'a>(&'a self, mut queue: ListLockGuard<'a, Queue>) {
        loop {
            let served = self.serve(&mut queue);
            drop(queue);
            let more = served.last().is_some_and(Option::is_some);
            // All of them are awake before the first one runs.
            let _quiet = NoEvents::new();
            served.into_iter().flatten().for_each(|waiter| waiter.wake());
            if !more {
                return;
            }
            queue = self.queue.lock();
        }
    }

    fn serve(&self, queue: &mut Queue) -> [Option<Waiter>; 8] {
        let mut served = [const { None }; 8];
        let word = self.word.load(Relaxed);
        if word & WAITERS == 0 {
            return served;
        }
        let mut permits = word / ONE;
        for place in &mut served {
            match queue.first() {
                Some(node) if node.tag <= permits => permits -= node.tag,
                _ => break,
            }
            *place = queue.pop().map(|claimed| claimed.finish(WOKEN));
        }
        // While the bit is on, the word changes under this lock only. Release: the permits that
        // were given back are passed on to threads that help themselves.
        let bit = if queue.is_empty() { 0 } else { WAITERS };
        self.word.store((permits * ONE) | bit, Release);
        served
    }
}

/// While unwinding: takes the node out, or gives back the permits that came all the same.
struct SemaphoreWithdrawal<'a> {
    semaphore: &'a Semaphore,
    node: &'a Node,
}

impl Drop for SemaphoreWithdrawal<'_> {
    fn drop(&mut self) {
        if !self.semaphore.withdraw(self.node) {
            self.semaphore.add_permits(self.node.tag);
        }
    }
}

impl SemaphorePermit<'_> {
    /// How many permits this stands for.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Keeps the permits for ever: the semaphore has that many fewer.
    pub fn forget(mut self) {
        self.count = 0;
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        if self.count != 0 {
            self.semaphore.add_permits(self.count);
        }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.queue.lock().iter().count();
        let mut d = f.debug_struct("Semaphore");
        d.field("permits", &self.available_permits())
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}
