//! Waiting for a condition on data that a mutex protects.

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

/// A condition variable for [`Mutex`](crate::Mutex); the API is [`std::sync::Condvar`]'s, with
/// [`wait_until`](Condvar::wait_until) and [`wait_while_until`](Condvar::wait_while_until) added.
///
/// *Blocks* the microprocess, or the kernel thread if the caller is one. Every wait is
/// a *cancellation point*: a cancelled waiter unwinds without the lock (the guard went into the
/// call, so the mutex is not poisoned), and a notification that it had received goes to the next.
/// Wake-ups can be spurious.
///
/// Order of waiters: higher priority first, then first come first served. One condition variable
/// may be used with several mutexes at different times, and at the same time too (std panics
/// there).
///
/// ```
/// use kumihimo_sync::{Condvar, Mutex};
/// let (ready, changed) = (Mutex::new(false), Condvar::new());
/// std::thread::scope(|s| {
///     s.spawn(|| {
///         *ready.lock().unwrap() = true;
///         changed.notify_one();
///     });
///     let ready = changed.wait_while(ready.lock().unwrap(), |ready| !*ready).unwrap();
///     assert!(*ready);
/// });
/// ```
pub struct Condvar {
    /// Number of queued waiters, so that a notification without any costs one load. Relaxed will
    /// do: a waiter counts itself while it holds the mutex, and a notification that must not be
    /// lost comes after a change made under that mutex.
    count: AtomicUsize,
    queue: ListLock<Queue>,
}

impl UnwindSafe for Condvar {}
impl RefUnwindSafe for Condvar {}

/// Whether a wait with a time limit ended because the time was over. As
/// [`std::sync::WaitTimeoutResult`], which only std can make.
#[derive(Debug, PartialEq, Eq, Copy, Clone)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True if the time was over.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    const_fn! {
        /// A condition variable nobody waits on.
        #[inline]
        pub fn new() -> Condvar {
            Condvar { count: AtomicUsize::new(0), queue: ListLock::new(Rank::List, Queue::new()) }
        }
    }

    /// Unlocks, waits for a notification, locks again. Unlocking and beginning to wait are one step
    /// for a thread that notifies after a change made under the mutex.
    ///
    /// # Errors
    /// The guard inside [`PoisonError`] if the mutex is poisoned when it is locked again.
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.wait_for_signal(guard, None).0
    }

    /// Waits while `condition` is true; it is asked with the mutex locked.
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

    /// As [`wait`](Condvar::wait), but no longer than `timeout`.
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

    /// As [`wait`](Condvar::wait), but no longer than until `deadline`.
    ///
    /// # Errors
    /// As [`wait`](Condvar::wait).
    pub fn wait_until<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Instant,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.wait_limited(guard, Some(deadline))
    }

    /// As [`wait_while`](Condvar::wait_while), but no longer than `timeout` in all. If the result
    /// says that the time was over, the condition was still true.
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

    /// As [`wait_while`](Condvar::wait_while), but no longer than until `deadline`. If the result
    /// says that the time was over, the condition was still true.
    ///
    /// # Errors
    /// As [`wait`](Condvar::wait).
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

    /// Wakes the first waiter, if there is one. Nothing is remembered if there is none.
    #[inline]
    pub fn notify_one(&self) {
        if self.count.load(Relaxed) != 0 {
            self.notify_first();
        }
    }

    /// Wakes all present waiters.
    #[inline]
    pub fn notify_all(&self) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        // Only those queued now: one that is woken and waits again must not use up a wake-up that
        // another should have.
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
            // All of them are awake before the first one runs.
            let _quiet = NoEvents::new();
            batch.into_iter().flatten().for_each(|waiter| waiter.wake());
            if !more {
                return;
            }
        }
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
        let signal = Signal::new();
        let node = Node::new(&signal);
        // Queued before the mutex is released: a notification in between is not lost.
        let mut queue = self.queue.lock();
        // SAFETY: `CondvarWithdrawal` unlinks the node before this frame ends, however it ends.
        unsafe { queue.insert(&node) };
        self.count.fetch_add(1, Relaxed);
        drop(queue);
        let withdraw = CondvarWithdrawal { condvar: self, node: &node };
        guard.unlocked(|| {
            let outcome = waitlist::wait_cancellable(
                &signal,
                Wait::Condvar(ptr::from_ref(self).addr()),
                deadline,
            );
            std::mem::forget(withdraw);
            // A notification after the deadline, but before the waiter has left, counts.
            outcome.is_some() || !self.remove(&node)
        })
    }

    /// True if the node was still queued.
    fn remove(&self, node: &Node) -> bool {
        let mut queue = self.queue.lock();
        let queued = queue.remove(node);
        if queued {
            self.count.fetch_sub(1, Relaxed);
        }
        queued
    }
}

/// While unwinding: takes the node out again, or passes on the notification that came all the same.
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
