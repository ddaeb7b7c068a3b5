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
/// # Examples
///
/// ```
/// use kumihimo::sync::Semaphore;
///
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
///
/// # Examples
///
/// ```
/// use kumihimo::sync::Semaphore;
///
/// let tokens = Semaphore::new(5);
/// let permit = tokens.acquire_many(3);
/// assert_eq!(tokens.available_permits(), 2);
/// drop(permit);
/// assert_eq!(tokens.available_permits(), 5);
/// ```
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
        ///
        /// # Examples
        ///
        /// ```
        /// use kumihimo::sync::Semaphore;
        ///
        /// static DOWNLOADS: Semaphore = Semaphore::new(4);
        /// assert_eq!(DOWNLOADS.available_permits(), 4);
        /// ```
        pub fn new(permits: usize) -> Semaphore {
            assert!(permits <= Semaphore::MAX_PERMITS, "a semaphore cannot hold that many permits");
            Semaphore { word: AtomicUsize::new(permits * ONE), queue: ListLock::new(Rank::List, Queue::new()) }
        }
    }

    /// Returns the number of available permits. Other threads may change it at any time.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Semaphore;
    ///
    /// let beds = Semaphore::new(2);
    /// let guest = beds.acquire();
    /// assert_eq!(beds.available_permits(), 1);
    /// # drop(guest);
    /// ```
    pub fn available_permits(&self) -> usize {
        self.word.load(Relaxed) / ONE
    }

    /// Acquires one permit. Blocks the microprocess until one is available.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Semaphore;
    /// use kumihimo::thread;
    ///
    /// let (printers, pages) = (Semaphore::new(2), Semaphore::new(0));
    /// thread::scope(|s| {
    ///     for _ in 0..10 {
    ///         s.spawn(|| {
    ///             let _printer = printers.acquire(); // at most two print at a time
    ///             pages.add_permits(1);
    ///         });
    ///     }
    /// });
    /// assert_eq!(pages.available_permits(), 10);
    /// assert_eq!(printers.available_permits(), 2);
    /// ```
    pub fn acquire(&self) -> SemaphorePermit<'_> {
        self.acquire_many(1)
    }

    /// Acquires `count` permits together. Blocks the microprocess until that many are available,
    /// for ever if the semaphore never holds that many.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Semaphore;
    ///
    /// // Readers take one permit, a writer takes all of them.
    /// let access = Semaphore::new(8);
    /// let writer = access.acquire_many(8);
    /// assert!(access.try_acquire().is_none());
    /// drop(writer);
    /// assert!(access.try_acquire().is_some());
    /// ```
    pub fn acquire_many(&self, count: usize) -> SemaphorePermit<'_> {
        self.take(count, None);
        SemaphorePermit { semaphore: self, count }
    }

    /// Acquires one permit if it is available and no thread waits. Never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Semaphore;
    ///
    /// let calls = Semaphore::new(1);
    /// let first = calls.try_acquire();
    /// assert!(first.is_some());
    /// assert!(calls.try_acquire().is_none());
    /// ```
    pub fn try_acquire(&self) -> Option<SemaphorePermit<'_>> {
        self.try_acquire_many(1)
    }

    /// Acquires `count` permits if they are available and no thread waits. Never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Semaphore;
    ///
    /// let megabytes = Semaphore::new(100);
    /// assert!(megabytes.try_acquire_many(101).is_none());
    /// let permit = megabytes.try_acquire_many(60).unwrap();
    /// assert_eq!(permit.count(), 60);
    /// ```
    pub fn try_acquire_many(&self, count: usize) -> Option<SemaphorePermit<'_>> {
        self.take_free(count).then(|| SemaphorePermit { semaphore: self, count })
    }

    /// Acquires one permit, or returns `None` after `timeout`. Blocks the microprocess, at most
    /// until then.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Semaphore;
    /// use std::time::Duration;
    ///
    /// let lanes = Semaphore::new(1);
    /// let taken = lanes.acquire();
    /// assert!(lanes.acquire_timeout(Duration::from_millis(5)).is_none());
    /// drop(taken);
    /// assert!(lanes.acquire_timeout(Duration::from_millis(5)).is_some());
    /// ```
    pub fn acquire_timeout(&self, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        self.acquire_limited(1, deadline::after(timeout))
    }

    /// Acquires one permit, or returns `None` at `deadline`. Blocks the microprocess, at most until
    /// then.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Semaphore;
    /// use std::time::{Duration, Instant};
    ///
    /// // Both waits together last 5 ms at most.
    /// let (cooks, ovens) = (Semaphore::new(1), Semaphore::new(0));
    /// let deadline = Instant::now() + Duration::from_millis(5);
    /// let cook = cooks.acquire_until(deadline);
    /// let oven = ovens.acquire_until(deadline);
    /// assert!(cook.is_some() && oven.is_none());
    /// ```
    pub fn acquire_until(&self, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        self.acquire_limited(1, Some(deadline))
    }

    /// Acquires `count` permits, or returns `None` after `timeout`. Blocks the microprocess, at
    /// most until then.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Semaphore;
    /// use std::time::Duration;
    ///
    /// let chairs = Semaphore::new(3);
    /// assert!(chairs.acquire_many_timeout(4, Duration::from_millis(5)).is_none());
    /// assert_eq!(chairs.available_permits(), 3, "the request took none");
    /// ```
    pub fn acquire_many_timeout(
        &self,
        count: usize,
        timeout: Duration,
    ) -> Option<SemaphorePermit<'_>> {
        self.acquire_limited(count, deadline::after(timeout))
    }

    /// Acquires `count` permits, or returns `None` at `deadline`. Blocks the microprocess, at most
    /// until then.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Semaphore;
    /// use std::time::{Duration, Instant};
    ///
    /// let chairs = Semaphore::new(4);
    /// let party = chairs.acquire_many_until(4, Instant::now() + Duration::from_millis(5));
    /// assert_eq!(party.unwrap().count(), 4);
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Semaphore;
    /// use kumihimo::thread;
    ///
    /// // Counts events: `acquire` waits for one, `add_permits` reports some.
    /// let delivered = Semaphore::new(0);
    /// thread::scope(|s| {
    ///     s.spawn(|| delivered.add_permits(2));
    ///     s.spawn(|| delivered.add_permits(1));
    ///     delivered.acquire_many(3).forget();
    /// });
    /// assert_eq!(delivered.available_permits(), 0);
    /// ```
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

    /// Whether a caller of `acquire` waits.
    #[doc(hidden)]
    pub fn has_waiters(&self) -> bool {
        self.word.load(Relaxed) & WAITERS != 0
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
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Semaphore;
    ///
    /// let seats = Semaphore::new(10);
    /// assert_eq!(seats.acquire_many(4).count(), 4);
    /// ```
    pub fn count(&self) -> usize {
        self.count
    }

    /// Keeps the permits for ever: the semaphore has that many fewer.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Semaphore;
    ///
    /// let workers = Semaphore::new(8);
    /// workers.acquire_many(6).forget();
    /// assert_eq!(workers.available_permits(), 2);
    /// ```
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
