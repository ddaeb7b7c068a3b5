//! One-time initialisation.

use crate::loom::{AtomicU32, AtomicU64, Wait, const_fn, me};
use crate::wait::deadline;
use crate::wait::list_lock::ListLock;
use crate::wait::lockrank::Rank;
use crate::wait::waitlist::{self, Node, Queue, Signal, WOKEN};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

const INCOMPLETE: u32 = 0;
const POISONED: u32 = 1;
const RUNNING: u32 = 2;
const COMPLETE: u32 = 3;

/// Runs one initialisation, once, for microprocesses and kernel threads alike; the API is
/// [`std::sync::Once`]'s, with [`wait_timeout`](Once::wait_timeout) and
/// [`wait_until`](Once::wait_until) added.
///
/// Callers that come while it runs *block* (the microprocess, or the kernel thread). *Not* a
/// cancellation point, though the closure may contain some: a panic or a cancellation in it poisons
/// the `Once`.
///
/// Memory ordering: what the closure did *happens before* every return of `call_once` and every
/// `is_completed` that says so.
///
/// ```
/// use kumihimo_sync::Once;
/// static START: Once = Once::new();
/// START.call_once(|| println!("once"));
/// START.call_once(|| unreachable!());
/// assert!(START.is_completed());
/// ```
pub struct Once {
    state: AtomicU32,
    /// The thread that runs the closure, to tell a recursive call from one that can wait.
    runner: AtomicU64,
    queue: ListLock<Queue>,
}

impl UnwindSafe for Once {}
impl RefUnwindSafe for Once {}

/// What [`Once::call_once_force`] tells its closure. As [`std::sync::OnceState`], which only std
/// can make.
pub struct OnceState {
    poisoned: bool,
}

impl OnceState {
    /// Whether an earlier closure panicked.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

impl fmt::Debug for OnceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceState").field("poisoned", &self.poisoned).finish()
    }
}

/// Stores how the closure ended, also when it unwinds, and wakes the waiters.
struct Finish<'a> {
    once: &'a Once,
    to: u32,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.once.runner.store(0, Relaxed);
        // Under the queue's lock nobody is between looking at the state and queueing.
        let mut queue = self.once.queue.lock();
        self.once.state.store(self.to, Release);
        // Only those queued now: one that waits for completion queues again if this was a panic.
        let limit = queue.turns();
        while let Some(claimed) = queue.pop_up_to(limit) {
            let waiter = claimed.finish(WOKEN);
            drop(queue);
            waiter.wake();
            queue = self.once.queue.lock();
        }
    }
}

impl Once {
    const_fn! {
        /// A `Once` that has not run.
        #[inline]
        #[allow(clippy::new_without_default)] // As std's, which has none.
        pub fn new() -> Once {
            let queue = ListLock::new(Rank::List, Queue::new());
            Once { state: AtomicU32::new(INCOMPLETE), runner: AtomicU64::new(0), queue }
        }
    }

    /// Runs `f` unless some closure has run to its end already; waits for one that is running.
    ///
    /// # Panics
    /// If an earlier closure panicked, and if called from within the closure of the same `Once`.
    #[inline]
    #[track_caller]
    pub fn call_once<F: FnOnce()>(&self, f: F) {
        if !self.is_completed() {
            let mut f = Some(f);
            self.call(false, &mut |_| f.take().expect("called once")());
        }
    }

    /// As [`call_once`](Once::call_once), but runs `f` also if an earlier closure panicked; `f` is
    /// told.
    ///
    /// # Panics
    /// If called from within the closure of the same `Once`.
    #[inline]
    pub fn call_once_force<F: FnOnce(&OnceState)>(&self, f: F) {
        if !self.is_completed() {
            let mut f = Some(f);
            self.call(true, &mut |state| f.take().expect("called once")(state));
        }
    }

    /// Whether a closure has run to its end.
    #[inline]
    pub fn is_completed(&self) -> bool {
        self.state.load(Acquire) == COMPLETE
    }

    /// Whether the last closure panicked.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.state.load(Acquire) == POISONED
    }

    /// Waits until a closure has run to its end.
    ///
    /// # Panics
    /// If the closure panicked.
    pub fn wait(&self) {
        self.wait_limited(false, None);
    }

    /// As [`wait`](Once::wait), but gives up after `timeout`. True: a closure has run to its end.
    ///
    /// # Panics
    /// If the closure panicked.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.wait_limited(false, deadline::after(timeout))
    }

    /// As [`wait`](Once::wait), but gives up at `deadline`. True: a closure has run to its end.
    ///
    /// # Panics
    /// If the closure panicked.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        self.wait_limited(false, Some(deadline))
    }

    /// As [`wait`](Once::wait), but goes on waiting if a closure panicked.
    pub fn wait_force(&self) {
        self.wait_limited(true, None);
    }

    /// True: completed. False: the deadline has passed.
    pub(crate) fn wait_limited(&self, force: bool, deadline: Option<Instant>) -> bool {
        self.is_completed() || self.wait_complete(force, deadline)
    }

    #[cold]
    #[track_caller]
    pub(crate) fn call(&self, force: bool, f: &mut dyn FnMut(&OnceState)) {
        loop {
            let state = self.state.load(Acquire);
            match state {
                COMPLETE => return,
                POISONED if !force => poisoned(),
                INCOMPLETE | POISONED => {
                    if self.state.compare_exchange(state, RUNNING, AcqRel, Relaxed).is_err() {
                        continue;
                    }
                    self.runner.store(me(), Relaxed);
                    let mut finish = Finish { once: self, to: POISONED };
                    f(&OnceState { poisoned: state == POISONED });
                    finish.to = COMPLETE;
                    return;
                }
                _ => {
                    if self.runner.load(Relaxed) == me() {
                        panic!(
                            "one-time initialisation called from within its own closure: it would wait for itself"
                        );
                    }
                    self.wait_while(|state| state == RUNNING, None);
                }
            }
        }
    }

    #[cold]
    #[track_caller]
    fn wait_complete(&self, force: bool, deadline: Option<Instant>) -> bool {
        let mut in_time = true;
        loop {
            match self.state.load(Acquire) {
                COMPLETE => return true,
                POISONED if !force => poisoned(),
                _ if !in_time => return false,
                _ => {
                    in_time = self.wait_while(
                        |state| state != COMPLETE && (force || state != POISONED),
                        deadline,
                    )
                }
            }
        }
    }

    /// Waits for the next change of the state, unless it is as wished already. False: the deadline
    /// passed first.
    fn wait_while(&self, wait: impl Fn(u32) -> bool, deadline: Option<Instant>) -> bool {
        let signal = Signal::new();
        let node = Node::new(&signal);
        let mut queue = self.queue.lock();
        if !wait(self.state.load(Relaxed)) {
            return true;
        }
        // SAFETY: a waker unlinks the node, or we do below.
        unsafe { queue.insert(&node) };
        drop(queue);
        let outcome = waitlist::wait(&signal, Wait::Once(ptr::from_ref(self).addr()), deadline);
        outcome.is_some() || !self.queue.lock().remove(&node)
    }
}

#[cold]
#[track_caller]
fn poisoned() -> ! {
    panic!("Once instance has previously been poisoned")
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").finish_non_exhaustive()
    }
}
