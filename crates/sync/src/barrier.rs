//! Waiting until all have come.

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

/// Lets a number of callers wait for each other, again and again; the API is
/// [`std::sync::Barrier`]'s, with [`wait_timeout`](Barrier::wait_timeout) and
/// [`wait_until`](Barrier::wait_until) added.
///
/// *Blocks* the microprocess, or the kernel thread if the caller is one. A *cancellation point*: a
/// caller that is cancelled or gives up no longer counts as having come.
///
/// Memory ordering: what each did before `wait` *happens before* what any does after it.
///
/// ```
/// use kumihimo_sync::Barrier;
/// let barrier = Barrier::new(3);
/// let leaders = std::thread::scope(|s| {
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
    /// Nodes up to this turn have been let go, those still queued too.
    let_go: u64,
}

impl UnwindSafe for Barrier {}
impl RefUnwindSafe for Barrier {}

/// Whether the caller was the last to come. As [`std::sync::BarrierWaitResult`], which only std can
/// make.
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// True for exactly one of the threads that wait together.
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
        /// A barrier for `n` callers. 0 behaves as 1.
        #[inline]
        pub fn new(n: usize) -> Barrier {
            Barrier { size: n, inside: ListLock::new(Rank::List, Arrivals { queue: Queue::new(), come: 0, let_go: 0 }) }
        }
    }

    /// Waits until all have come.
    pub fn wait(&self) -> BarrierWaitResult {
        self.wait_limited(None).expect("without a deadline there is a result")
    }

    /// As [`wait`](Barrier::wait), but gives up after `timeout`: None.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<BarrierWaitResult> {
        self.wait_limited(deadline::after(timeout))
    }

    /// As [`wait`](Barrier::wait), but gives up at `deadline`: None.
    pub fn wait_until(&self, deadline: Instant) -> Option<BarrierWaitResult> {
        self.wait_limited(Some(deadline))
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
        // SAFETY: unlinked by the leader, on unwinding, or below.
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

    /// Wakes the waiters queued up to `limit`; later ones belong to the next round.
    fn wake(&self, limit: u64) {
        loop {
            let mut batch = [const { None::<Waiter> }; 16];
            let mut inside = self.inside.lock();
            for place in &mut batch {
                *place = inside.queue.pop_up_to(limit).map(|claimed| claimed.finish(WOKEN));
            }
            drop(inside);
            let more = batch.last().is_some_and(Option::is_some);
            // All of them are awake before the first one runs.
            let _quiet = NoEvents::new();
            batch.into_iter().flatten().for_each(|waiter| waiter.wake());
            if !more {
                return;
            }
        }
    }

    /// True if the node no longer counts; false if all had come before it could leave.
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
