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

/// One-time initialisation for microprocesses and kernel threads. The API is that of
/// [`std::sync::Once`], with [`wait_timeout`](Once::wait_timeout) and
/// [`wait_until`](Once::wait_until) added.
///
/// Callers that arrive while the closure runs *block*: the microprocess, or the kernel thread if
/// the caller is not a microprocess. *Not* a cancellation point, although the closure may contain
/// cancellation points. A panic or a cancellation in the closure poisons the `Once`.
///
/// Memory ordering: the closure *happens before* every return of `call_once`, and before every call
/// of `is_completed` that returns true.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::Once;
///
/// static START: Once = Once::new();
/// let mut log = Vec::new();
/// START.call_once(|| log.push("started"));
/// START.call_once(|| unreachable!());
/// assert_eq!(log, ["started"]);
/// assert!(START.is_completed());
/// ```
#[repr(C)]
pub struct Once {
    /// Mark of the thread that runs the closure, by which a recursive call is detected.
    runner: AtomicU64,
    state: AtomicU32,
    queue: ListLock<Queue>,
}

// Reports read the mark.
#[cfg(not(loom))]
const _: () =
    assert!(std::mem::offset_of!(Once, runner) == kumihimo_runtime::park::lock_layout::ONCE_RUNNER);

impl UnwindSafe for Once {}
impl RefUnwindSafe for Once {}

/// State that [`Once::call_once_force`] passes to its closure. Stands in for
/// [`std::sync::OnceState`], which other crates cannot construct.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::Once;
///
/// let once = Once::new();
/// let mut is_first_attempt = false;
/// once.call_once_force(|state| is_first_attempt = !state.is_poisoned());
/// assert!(is_first_attempt);
/// ```
pub struct OnceState {
    poisoned: bool,
}

impl OnceState {
    /// Returns whether an earlier closure panicked.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

impl fmt::Debug for OnceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceState").field("poisoned", &self.poisoned).finish()
    }
}

/// Stores the result of the closure, also when it unwinds, and wakes the waiters.
struct Finish<'a> {
    once: &'a Once,
    to: u32,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.once.runner.store(0, Relaxed);
        // A waiter checks the state and queues under this lock, so the store cannot fall in
        // between.
        let mut queue = self.once.queue.lock();
        self.once.state.store(self.to, Release);
        // Only waiters queued now are woken: after a panic, a waiter for completion queues again.
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
        /// Creates a `Once` whose closure has not run.
        #[inline]
        #[allow(clippy::new_without_default)] // `std::sync::Once` has no `Default` either.
        pub fn new() -> Once {
            let queue = ListLock::new(Rank::List, Queue::new());
            Once { state: AtomicU32::new(INCOMPLETE), runner: AtomicU64::new(0), queue }
        }
    }

    /// Runs `f` unless a closure has completed already. Blocks the microprocess while another
    /// caller's closure runs.
    ///
    /// # Panics
    /// If an earlier closure panicked, or if called from within the closure of the same `Once`.
    #[inline]
    #[track_caller]
    pub fn call_once<F: FnOnce()>(&self, f: F) {
        if !self.is_completed() {
            let mut f = Some(f);
            self.call(false, &mut |_| f.take().expect("called once")());
        }
    }

    /// Calls [`call_once`](Once::call_once), but runs `f` even if an earlier closure panicked. `f`
    /// receives an [`OnceState`] that records this. Blocks the microprocess in the same cases.
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

    /// Returns whether a closure has completed.
    #[inline]
    pub fn is_completed(&self) -> bool {
        self.state.load(Acquire) == COMPLETE
    }

    /// Whether the last closure panicked.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.state.load(Acquire) == POISONED
    }

    /// Blocks the microprocess until a closure has completed.
    ///
    /// # Panics
    /// If the closure panicked.
    pub fn wait(&self) {
        self.wait_limited(false, None);
    }

    /// Waits like [`wait`](Once::wait), but gives up after `timeout`. Returns whether a closure has
    /// completed. Blocks the microprocess meanwhile.
    ///
    /// # Panics
    /// If the closure panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Once;
    /// use std::time::Duration;
    ///
    /// let once = Once::new();
    /// assert!(!once.wait_timeout(Duration::from_millis(5)));
    /// once.call_once(|| {});
    /// assert!(once.wait_timeout(Duration::from_millis(5)));
    /// ```
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.wait_limited(false, deadline::after(timeout))
    }

    /// Waits like [`wait`](Once::wait), but gives up at `deadline`. Returns whether a closure has
    /// completed. Blocks the microprocess meanwhile.
    ///
    /// # Panics
    /// If the closure panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::Once;
    /// use kumihimo::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let loaded = Once::new();
    /// thread::scope(|s| {
    ///     s.spawn(|| loaded.call_once(|| thread::sleep(Duration::from_millis(5))));
    ///     assert!(loaded.wait_until(Instant::now() + Duration::from_secs(60)));
    /// });
    /// ```
    pub fn wait_until(&self, deadline: Instant) -> bool {
        self.wait_limited(false, Some(deadline))
    }

    /// Waits like [`wait`](Once::wait), but continues to wait if a closure panics. Blocks the
    /// microprocess.
    pub fn wait_force(&self) {
        self.wait_limited(true, None);
    }

    /// Returns true if a closure has completed, and false if the deadline passed first.
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

    /// Waits for the next change of the state if `wait` returns true for the current state. Returns
    /// false if the deadline passed first.
    fn wait_while(&self, wait: impl Fn(u32) -> bool, deadline: Option<Instant>) -> bool {
        let signal = Signal::new();
        let node = Node::new(&signal);
        let mut queue = self.queue.lock();
        if !wait(self.state.load(Relaxed)) {
            return true;
        }
        // SAFETY: a waker unlinks the node, or the `remove` below does.
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
