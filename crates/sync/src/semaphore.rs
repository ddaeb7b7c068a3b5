//! Counting semaphore.

use crate::loom::{AtomicUsize, NoEvents, Wait, Waiter, const_fn, current};
use crate::wait::deadline;
use crate::wait::list_lock::{ListLock, ListLockGuard};
use crate::wait::lockrank::Rank;
use crate::wait::waitlist::{self, Node, Queue, Signal, WOKEN};
use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

/// Lowest bit of the word, set while threads wait: permits are then taken under the queue's lock
/// only. The bits above it hold the number of permits.
const WAITERS: usize = 1;
const ONE: usize = 2;

/// Counting semaphore for microprocesses and kernel threads, in any mixture.
///
/// `acquire` takes permits and *blocks* until there are enough: the microprocess, or the kernel
/// thread if the caller is not a microprocess. It is a *cancellation point* if it blocks. Permits
/// return when the [`SemaphorePermit`] is dropped, or by [`add_permits`](Semaphore::add_permits).
///
/// Waiters are served by priority, then in order of arrival, without overtaking: a request for many
/// permits is not starved by requests for one.
///
/// Memory ordering: returning a permit *happens before* its next acquisition.
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

/// Permits acquired from a [`Semaphore`]; returned on drop.
#[must_use = "if unused the permit is given back at once"]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    count: usize,
}

impl Semaphore {
    /// Maximum number of permits of a semaphore.
    pub const MAX_PERMITS: usize = usize::MAX >> 1;

    const_fn! {
        /// Creates a semaphore with `permits` permits.
        ///
        /// # Panics
        /// If `permits` exceeds [`MAX_PERMITS`](Semaphore::MAX_PERMITS).
        pub fn new(permits: usize) -> Semaphore {
            assert!(permits <= Semaphore::MAX_PERMITS, "a semaphore cannot hold that many permits");
            Semaphore { word: AtomicUsize::new(permits * ONE), queue: ListLock::new(Rank::List, Queue::new()) }
        }
    }

    /// Returns the number of available permits. Other threads may change it at any time.
    pub fn available_permits(&self) -> usize {
        self.word.load(Relaxed) / ONE
    }

    /// Acquires one permit, blocking until one is available.
    pub fn acquire(&self) -> SemaphorePermit<'_> {
        self.acquire_many(1)
    }

    /// Acquires `count` permits together, blocking until that many are available. Blocks for ever
    /// if the semaphore never holds that many.
    pub fn acquire_many(&self, count: usize) -> SemaphorePermit<'_> {
        self.take(count, None);
        SemaphorePermit { semaphore: self, count }
    }

    /// Acquires one permit if it is available and no thread waits. Never blocks.
    pub fn try_acquire(&self) -> Option<SemaphorePermit<'_>> {
        self.try_acquire_many(1)
    }

    /// Acquires `count` permits if they are available and no thread waits. Never blocks.
    pub fn try_acquire_many(&self, count: usize) -> Option<SemaphorePermit<'_>> {
        self.take_free(count).then(|| SemaphorePermit { semaphore: self, count })
    }

    /// Acquires one permit, or returns `None` after `timeout`.
    pub fn acquire_timeout(&self, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        self.acquire_limited(1, deadline::after(timeout))
    }

    /// Acquires one permit, or returns `None` at `deadline`.
    pub fn acquire_until(&self, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        self.acquire_limited(1, Some(deadline))
    }

    /// Acquires `count` permits, or returns `None` after `timeout`.
    pub fn acquire_many_timeout(
        &self,
        count: usize,
        timeout: Duration,
    ) -> Option<SemaphorePermit<'_>> {
        self.acquire_limited(count, deadline::after(timeout))
    }

    /// Acquires `count` permits, or returns `None` at `deadline`.
    pub fn acquire_many_until(
        &self,
        count: usize,
        deadline: Instant,
    ) -> Option<SemaphorePermit<'_>> {
        self.acquire_limited(count, Some(deadline))
    }

    /// Adds `count` permits and gives them to waiters first.
    ///
    /// # Panics
    /// If the sum exceeds [`MAX_PERMITS`](Semaphore::MAX_PERMITS). No permit is added then.
    pub fn add_permits(&self, count: usize) {
        let mut word = self.word.load(Relaxed);
        while word & WAITERS == 0 {
            let sum = (word / ONE).checked_add(count).filter(|&n| n <= Semaphore::MAX_PERMITS);
            let sum = sum.expect("a semaphore cannot hold that many permits");
            // The bit is clear, so no thread waits; a thread that starts to wait changes the word.
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
        // From here on the permits change only under the lock.
        let word = self.word.fetch_or(WAITERS, Acquire);
        if word & WAITERS == 0 && word / ONE >= count {
            // Release: passes on the writes of the threads that returned the remaining permits.
            self.word.store(word - count * ONE, Release);
            return true;
        }
        // SAFETY: a waker unlinks the node, or `SemaphoreWithdrawal` on unwinding, or `withdraw`
        // below.
        unsafe { queue.insert(&node) };
        // With a higher priority than the earlier waiters, this request may be satisfiable at once.
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

    /// Removes the node and serves the waiters that it held up. Returns false if it was no longer
    /// queued.
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
            // The bit may have been cleared since, in which case other threads change the word
            // without the lock.
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

    /// Gives permits to the first waiters while the permits last, in batches, and wakes them
    /// without the lock.
    fn serve_all<'a>(&'a self, mut queue: ListLockGuard<'a, Queue>) {
        loop {
            let served = self.serve(&mut queue);
            drop(queue);
            let more = served.last().is_some_and(Option::is_some);
            // Without events no woken waiter runs on this VP before the whole batch is awake.
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
        // While the bit is set, the word changes under this lock only. Release: passes the writes
        // of the threads that returned permits to later acquirers.
        let bit = if queue.is_empty() { 0 } else { WAITERS };
        self.word.store((permits * ONE) | bit, Release);
        served
    }
}

/// Clean-up of a wait that unwinds: unlinks the node, or returns the permits that it received.
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
    /// Returns the number of permits held.
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
