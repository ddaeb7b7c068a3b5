//! Barrier: blocks callers until a given number of them have arrived.

use crate::loom::{NoEvents, Wait, Waiter, const_fn, point};
use crate::wait::deadline;
use crate::wait::list_lock::ListLock;
use crate::wait::lockrank::Rank;
use crate::wait::unwind::OnUnwind;
use crate::wait::waitlist::{self, Node, Queue, Signal, WOKEN};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::time::{Duration, Instant};

/// Barrier for a fixed number of callers, usable repeatedly. The API is that of
/// [`std::sync::Barrier`], with [`wait_timeout`](Barrier::wait_timeout) and
/// [`wait_until`](Barrier::wait_until) added.
///
/// *Blocks* the microprocess, or the kernel thread if the caller is not a microprocess. A
/// *cancellation point*: a caller that is cancelled or gives up no longer counts as arrived.
///
/// Memory ordering: everything before any caller's `wait` *happens before* everything after any
/// caller's return from it.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::Barrier;
/// use kumihimo::thread;
///
/// let barrier = Barrier::new(3);
/// let leaders = thread::scope(|s| {
///     let threads: Vec<_> = (0..3).map(|_| s.spawn(|| barrier.wait().is_leader())).collect();
///     threads.into_iter().map(|t| t.join().unwrap()).filter(|&leader| leader).count()
/// });
/// assert_eq!(leaders, 1);
/// ```
pub struct Barrier {
    size: usize,
    inside: ListLock<Arrivals>,
}

struct Arrivals {
    queue: Queue,
    come: usize,
    /// Nodes up to this turn have been released, even if they are still queued.
    let_go: u64,
}

impl UnwindSafe for Barrier {}
impl RefUnwindSafe for Barrier {}

/// Whether the caller arrived last. Stands in for [`std::sync::BarrierWaitResult`], which other
/// crates cannot construct.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::Barrier;
///
/// // The only caller is also the last.
/// let result = Barrier::new(1).wait();
/// assert!(result.is_leader());
/// ```
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Returns true for exactly one of the callers that were released together.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl fmt::Debug for BarrierWaitResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierWaitResult").field("is_leader", &self.0).finish()
    }
}

impl Barrier {
    const_fn! {
        /// Creates a barrier for `n` callers. 0 behaves as 1.
        #[inline]
        pub fn new(n: usize) -> Barrier {
            Barrier { size: n, inside: ListLock::new(Rank::List, Arrivals { queue: Queue::new(), come: 0, let_go: 0 }) }
        }
    }

    /// Waits until all callers have arrived. Blocks the microprocess, or the kernel thread if the
    /// caller is not a microprocess.
    pub fn wait(&self) -> BarrierWaitResult {
        self.wait_limited(None).expect("without a deadline there is a result")
    }

    /// Waits like [`wait`](Barrier::wait), but returns `None` after `timeout`. Blocks the
    /// microprocess for `timeout` at most.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Barrier;
    /// use std::time::Duration;
    ///
    /// let barrier = Barrier::new(2);
    /// assert!(barrier.wait_timeout(Duration::from_millis(5)).is_none(), "nobody else came");
    /// ```
    pub fn wait_timeout(&self, timeout: Duration) -> Option<BarrierWaitResult> {
        self.wait_limited(deadline::after(timeout))
    }

    /// Waits like [`wait`](Barrier::wait), but returns `None` at `deadline`. Blocks the
    /// microprocess until `deadline` at the latest.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Barrier;
    /// use kumihimo::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let barrier = Barrier::new(2);
    /// thread::scope(|s| {
    ///     s.spawn(|| barrier.wait());
    ///     assert!(barrier.wait_until(Instant::now() + Duration::from_secs(60)).is_some());
    /// });
    /// ```
    pub fn wait_until(&self, deadline: Instant) -> Option<BarrierWaitResult> {
        self.wait_limited(Some(deadline))
    }

    /// Returns the number of callers that wait for the others of their round.
    #[doc(hidden)]
    pub fn waiting(&self) -> usize {
        self.inside.lock().come
    }

    fn wait_limited(&self, deadline: Option<Instant>) -> Option<BarrierWaitResult> {
        point();
        let signal = Signal::new();
        let node = Node::new(&signal);
        let mut inside = self.inside.lock();
        inside.come += 1;
        if inside.come >= self.size {
            inside.come = 0;
            inside.let_go = inside.queue.turns();
            let limit = inside.let_go;
            drop(inside);
            self.wake(limit);
            return Some(BarrierWaitResult(true));
        }
        // SAFETY: the last caller unlinks the node, or `withdraw` does, on unwinding or below.
        unsafe { inside.queue.insert(&node) };
        drop(inside);
        let withdraw = OnUnwind(|| {
            self.withdraw(&node);
        });
        let outcome = waitlist::wait_cancellable(
            &signal,
            Wait::Barrier(ptr::from_ref(self).addr()),
            deadline,
        );
        std::mem::forget(withdraw);
        (outcome.is_some() || !self.withdraw(&node)).then_some(BarrierWaitResult(false))
    }

    /// Wakes the waiters queued up to turn `limit`. Later waiters belong to the next round.
    fn wake(&self, limit: u64) {
        loop {
            let mut batch = [const { None::<Waiter> }; 16];
            let mut inside = self.inside.lock();
            for place in &mut batch {
                *place = inside.queue.pop_up_to(limit).map(|claimed| claimed.finish(WOKEN));
            }
            drop(inside);
            let more = batch.last().is_some_and(Option::is_some);
            // Without events no woken waiter runs on this VP before the whole batch is awake.
            let _quiet = NoEvents::new();
            batch.into_iter().flatten().for_each(|waiter| waiter.wake());
            if !more {
                return;
            }
        }
    }

    /// Withdraws a waiter. Returns false if all callers had arrived before it could leave.
    fn withdraw(&self, node: &Node) -> bool {
        let mut inside = self.inside.lock();
        let counts = inside.queue.remove(node) && node.turn() > inside.let_go;
        if counts {
            inside.come -= 1;
        }
        counts
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").finish_non_exhaustive()
    }
}
