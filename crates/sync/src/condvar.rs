//! Condition variable for data that a mutex guards.

use crate::lock::mutex::MutexGuard;
use crate::lock::poison::{LockResult, PoisonError};
use crate::loom::{AtomicUsize, NoEvents, Wait, const_fn};
use crate::wait::deadline;
use crate::wait::list_lock::ListLock;
use crate::wait::lockrank::Rank;
use crate::wait::waitlist::{self, Node, Queue, Signal, WOKEN};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Condition variable for [`Mutex`](crate::Mutex). The API is that of [`std::sync::Condvar`], with
/// [`wait_until`](Condvar::wait_until) and [`wait_while_until`](Condvar::wait_while_until) added.
///
/// *Blocks* the microprocess, or the kernel thread if the caller is not a microprocess. Every wait
/// is a *cancellation point*. A cancelled waiter unwinds without the lock; the guard was moved into
/// the call, so the mutex is not poisoned. A notification that the cancelled waiter had received
/// goes to the next waiter. Wake-ups can be spurious.
///
/// Waiters are notified by priority, then in order of arrival. A condition variable may be used
/// with several mutexes, even at the same time, where std panics.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::{Condvar, Mutex};
/// use kumihimo::thread;
///
/// let (ready, changed) = (Mutex::new(false), Condvar::new());
/// thread::scope(|s| {
///     s.spawn(|| {
///         *ready.lock().unwrap() = true;
///         changed.notify_one();
///     });
///     let ready = changed.wait_while(ready.lock().unwrap(), |ready| !*ready).unwrap();
///     assert!(*ready);
/// });
/// ```
pub struct Condvar {
    /// Number of queued waiters. With it, a notification without waiters costs one load. Relaxed
    /// suffices: a waiter increments it while it holds the mutex, and a notification that must not
    /// be lost follows a change made under that mutex.
    count: AtomicUsize,
    queue: ListLock<Queue>,
}

impl UnwindSafe for Condvar {}
impl RefUnwindSafe for Condvar {}

/// Whether a wait with a time limit timed out. Stands in for [`std::sync::WaitTimeoutResult`],
/// which other crates cannot construct.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::{Condvar, Mutex};
/// use std::time::Duration;
///
/// let (idle, changed) = (Mutex::new(true), Condvar::new());
/// let guard = idle.lock().unwrap();
/// let (_guard, result) =
///     changed.wait_timeout_while(guard, Duration::from_millis(5), |idle| *idle).unwrap();
/// assert!(result.timed_out());
/// ```
#[derive(Debug, PartialEq, Eq, Copy, Clone)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns true if the wait timed out.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    const_fn! {
        /// Creates a condition variable without waiters.
        #[inline]
        pub fn new() -> Condvar {
            Condvar { count: AtomicUsize::new(0), queue: ListLock::new(Rank::List, Queue::new()) }
        }
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again. Unlocking and
    /// queueing are one step for a thread that notifies after a change made under the mutex. Blocks
    /// the microprocess, or the kernel thread if the caller is not a microprocess.
    ///
    /// # Errors
    /// Returns the guard inside a [`PoisonError`] if the mutex is poisoned when it is locked again.
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.wait_for_signal(guard, None).0
    }

    /// Waits while `condition` returns true; `condition` is called with the mutex locked. Blocks
    /// the microprocess meanwhile.
    ///
    /// # Errors
    /// As [`wait`](Condvar::wait).
    pub fn wait_while<'a, T: ?Sized, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: F,
    ) -> LockResult<MutexGuard<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        while condition(&mut *guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// Waits like [`wait`](Condvar::wait), but no longer than `timeout`. Blocks the microprocess
    /// meanwhile.
    ///
    /// # Errors
    /// As [`wait`](Condvar::wait).
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_limited(guard, deadline::after(timeout))
    }

    /// Waits like [`wait`](Condvar::wait), but no longer than until `deadline`. Blocks the
    /// microprocess meanwhile.
    ///
    /// # Errors
    /// As [`wait`](Condvar::wait).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::{Condvar, Mutex};
    /// use std::time::{Duration, Instant};
    ///
    /// let (seats, freed) = (Mutex::new(0), Condvar::new());
    /// let deadline = Instant::now() + Duration::from_millis(5);
    /// let mut free = seats.lock().unwrap();
    /// while *free == 0 {
    ///     // Several waits share one deadline.
    ///     let (guard, result) = freed.wait_until(free, deadline).unwrap();
    ///     free = guard;
    ///     if result.timed_out() {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(*free, 0);
    /// ```
    pub fn wait_until<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Instant,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_limited(guard, Some(deadline))
    }

    /// Waits like [`wait_while`](Condvar::wait_while), but no longer than `timeout` in total. On a
    /// time-out, `condition` still returned true. Blocks the microprocess meanwhile.
    ///
    /// # Errors
    /// As [`wait`](Condvar::wait).
    pub fn wait_timeout_while<'a, T: ?Sized, F>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        self.wait_while_limited(guard, deadline::after(timeout), condition)
    }

    /// Waits like [`wait_while`](Condvar::wait_while), but no longer than until `deadline`. On a
    /// time-out, `condition` still returned true. Blocks the microprocess meanwhile.
    ///
    /// # Errors
    /// As [`wait`](Condvar::wait).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::{Condvar, Mutex};
    /// use kumihimo::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let (level, changed) = (Mutex::new(0), Condvar::new());
    /// let deadline = Instant::now() + Duration::from_secs(60);
    /// thread::scope(|s| {
    ///     s.spawn(|| {
    ///         *level.lock().unwrap() = 5;
    ///         changed.notify_all();
    ///     });
    ///     let guard = level.lock().unwrap();
    ///     let (now, result) = changed.wait_while_until(guard, deadline, |now| *now < 5).unwrap();
    ///     assert!(*now == 5 && !result.timed_out());
    /// });
    /// ```
    pub fn wait_while_until<'a, T: ?Sized, F>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Instant,
        condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        self.wait_while_limited(guard, Some(deadline), condition)
    }

    /// Wakes the first waiter. Without a waiter the notification has no effect.
    #[inline]
    pub fn notify_one(&self) {
        if self.count.load(Relaxed) != 0 {
            self.notify_first();
        }
    }

    /// Wakes all threads that wait at the time of the call. Without a waiter the notification has
    /// no effect.
    #[inline]
    pub fn notify_all(&self) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        // Only waiters queued before the call count: a woken thread that waits again must not
        // consume a wake-up meant for another waiter.
        let limit = self.queue.lock().turns();
        loop {
            let mut batch = [const { None }; 16];
            let mut queue = self.queue.lock();
            for place in &mut batch {
                *place = queue.pop_up_to(limit).map(|claimed| claimed.finish(WOKEN));
                if place.is_none() {
                    break;
                }
                self.count.fetch_sub(1, Relaxed);
            }
            drop(queue);
            let more = batch.last().is_some_and(Option::is_some);
            // Without events no woken waiter runs on this VP before the whole batch is awake.
            let _quiet = NoEvents::new();
            batch.into_iter().flatten().for_each(|waiter| waiter.wake());
            if !more {
                return;
            }
        }
    }

    /// Returns the number of waiters that no notification has reached.
    #[doc(hidden)]
    pub fn waiting(&self) -> usize {
        self.count.load(Relaxed)
    }

    fn notify_first(&self) {
        let mut queue = self.queue.lock();
        let Some(claimed) = queue.pop() else { return };
        let waiter = claimed.finish(WOKEN);
        self.count.fetch_sub(1, Relaxed);
        drop(queue);
        waiter.wake();
    }

    fn wait_limited<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let (guard, in_time) = self.wait_for_signal(guard, deadline);
        match guard {
            Ok(guard) => Ok((guard, WaitTimeoutResult(!in_time))),
            Err(e) => Err(PoisonError::new((e.into_inner(), WaitTimeoutResult(!in_time)))),
        }
    }

    fn wait_while_limited<'a, T: ?Sized, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
        mut condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        loop {
            if !condition(&mut *guard) {
                return Ok((guard, WaitTimeoutResult(false)));
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            guard = self.wait_limited(guard, deadline)?.0;
        }
    }

    fn wait_for_signal<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> (LockResult<MutexGuard<'a, T>>, bool) {
        self.wait_unlocked(deadline, |wait| guard.unlocked(wait))
    }

    /// Queues the caller and calls `unlocked` with the wait. `unlocked` releases the mutex, waits,
    /// and acquires the mutex again. The wait returns false if the deadline passed without a
    /// notification.
    pub(crate) fn wait_unlocked<R>(
        &self,
        deadline: Option<Instant>,
        unlocked: impl FnOnce(&mut dyn FnMut() -> bool) -> R,
    ) -> R {
        let signal = Signal::new();
        let node = Node::new(&signal);
        // The node is queued before the mutex is released, so no notification in between is lost.
        let mut queue = self.queue.lock();
        // SAFETY: `CondvarWithdrawal` unlinks the node before this frame ends, however it ends.
        unsafe { queue.insert(&node) };
        self.count.fetch_add(1, Relaxed);
        drop(queue);
        let mut withdraw = Some(CondvarWithdrawal { condvar: self, node: &node });
        unlocked(&mut || {
            // Dropped when the wait unwinds, and so before the mutex is locked again.
            let withdraw = withdraw.take();
            let outcome = waitlist::wait_cancellable(
                &signal,
                Wait::Condvar(ptr::from_ref(self).addr()),
                deadline,
            );
            std::mem::forget(withdraw);
            // A notification between the deadline and the removal of the node counts.
            outcome.is_some() || !self.remove(&node)
        })
    }

    /// Removes the node from the queue. Returns false if a notification has removed it already.
    fn remove(&self, node: &Node) -> bool {
        let mut queue = self.queue.lock();
        let queued = queue.remove(node);
        if queued {
            self.count.fetch_sub(1, Relaxed);
        }
        queued
    }
}

/// Clean-up of a wait that unwinds: unlinks the node, or passes a received notification to the next
/// waiter.
struct CondvarWithdrawal<'a> {
    condvar: &'a Condvar,
    node: &'a Node,
}

impl Drop for CondvarWithdrawal<'_> {
    fn drop(&mut self) {
        if !self.condvar.remove(self.node) {
            self.condvar.notify_one();
        }
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}
