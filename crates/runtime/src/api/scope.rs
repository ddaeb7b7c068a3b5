//! Scopes: groups of microprocesses that may borrow, because their scope waits for them. They are
//! cancelled together and share a deadline.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::thread::Result;
use std::time::{Duration, Instant};
use std::{fmt, io};

use crate::api::handle::Thread;
use crate::api::join_handle::JoinHandle;
use crate::lifecycle::scope_data::ScopeData;
use crate::lifecycle::thread_builder::Builder;
use crate::microprocess::wait_reason::Wait;
use crate::process::clock::after;
use crate::wait::{cancel, park};

/// A scope for microprocesses that borrow from outside of it. See [`scope`].
///
/// # Examples
///
/// ```
/// use kumihimo::thread::{self, Scope};
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
///
/// /// Visits a tree, with one microprocess for each node.
/// fn visit<'scope>(s: &'scope Scope<'scope, '_>, height: u32, nodes: &'scope AtomicU32) {
///     nodes.fetch_add(1, Relaxed);
///     for _ in 0..height.min(2) {
///         s.spawn(move || visit(s, height - 1, nodes));
///     }
/// }
///
/// let nodes = AtomicU32::new(0);
/// thread::scope(|s| visit(s, 2, &nodes));
/// assert_eq!(nodes.into_inner(), 1 + 2 + 2);
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    data: ScopeData,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Runs `f` with a scope in which microprocesses can be spawned that borrow from outside it.
/// Returns when all of them have ended.
///
/// As `std::thread::scope`. Blocks the microprocess (or the kernel thread if it runs none) until
/// the children have ended. If the caller is cancelled meanwhile, the children are cancelled and
/// waited for, and then the caller unwinds.
///
/// # Panics
/// With the panic of `f`; or if a child panicked whose handle was not joined.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
///
/// let text = String::from("one two three");
/// let mut longest = 0;
/// let words = thread::scope(|s| {
///     s.spawn(|| longest = text.split(' ').map(str::len).max().unwrap_or(0));
///     s.spawn(|| text.split(' ').count()).join().unwrap()
/// });
/// assert_eq!((words, longest), (3, 5));
/// ```
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    scope_with(cancel::deadline(), f)
}

fn scope_with<'env, F, T>(deadline: Option<Instant>, f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope {
        data: ScopeData::new(park::current(), deadline),
        scope: PhantomData,
        env: PhantomData,
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    if outcome.as_ref().is_err_and(|payload| payload.is::<cancel::Cancelled>()) {
        scope.data.cancel();
    }
    // Children borrow from the caller's frames, so nothing may unwind before they have ended.
    while scope.data.running.load(Ordering::Acquire) != 0 {
        if cancel::would_unwind() {
            scope.data.cancel();
        }
        park::park(Wait::Scope(scope.data.address()), None);
    }
    match outcome {
        Err(payload) => resume_unwind(payload),
        Ok(_) if scope.data.has_unhandled() => panic!("a scoped thread panicked"),
        Ok(value) => {
            cancel::point();
            value
        }
    }
}

/// As [`scope`], with a deadline that everything in `f` and its children inherits, at any depth.
/// Blocks the microprocess (or the kernel thread if it runs none) until the children have ended.
///
/// Sleeps and socket operations end at `deadline` at the latest, including those of the caller in
/// `f`. At the deadline the scope's children are cancelled: where they wait for anything else, or
/// as soon as they do. The caller itself is not cancelled; its waits for the end or the messages of
/// its children end with them. A deadline of an outer scope applies if it is earlier. If `f`
/// returns in time, its children are waited for.
///
/// # Examples
///
/// ```
/// use kumihimo::thread::{self, Cancelled};
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(2);
/// let outcome = thread::scope_until(deadline, |s| {
///     // No thread unparks this child, so it waits until the deadline.
///     s.spawn(thread::park).join()
/// });
/// assert!(outcome.unwrap_err().is::<Cancelled>());
/// assert!(Instant::now() >= deadline);
/// ```
pub fn scope_until<'env, F, T>(deadline: Instant, f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    struct Restore(Option<Instant>);
    impl Drop for Restore {
        fn drop(&mut self) {
            cancel::set_deadline(self.0);
        }
    }
    let outer = cancel::deadline();
    let inner = outer.map_or(deadline, |o| o.min(deadline));
    let _restore = Restore(outer);
    cancel::set_deadline(Some(inner));
    scope_with(Some(inner), |s| {
        let value = f(s);
        s.cancel_at(inner);
        value
    })
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts a microprocess of this scope. Does not block, except as [`Builder::spawn`] does
    /// without a runtime.
    ///
    /// # Panics
    /// If it cannot start; [`Builder::spawn_scoped`] returns the error instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread;
    ///
    /// let mut counts = [0; 3];
    /// thread::scope(|s| {
    ///     for (count, word) in counts.iter_mut().zip(["ring", "lane", "gates"]) {
    ///         s.spawn(move || *count = word.len());
    ///     }
    /// });
    /// assert_eq!(counts, [4, 4, 5]);
    /// ```
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        match Builder::new().spawn_scoped(self, f) {
            Ok(handle) => handle,
            Err(e) => panic!("failed to spawn microprocess: {e}"),
        }
    }

    /// As [`spawn`](Scope::spawn), for work that may fail. The first child that returns an error or
    /// panics cancels all others.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::{self, Cancelled};
    ///
    /// let (waiting, failed) = thread::scope(|s| {
    ///     let waiting = s.spawn(thread::park);
    ///     let failed = s.try_spawn(|| "12a".parse::<u32>());
    ///     (waiting.join(), failed.join())
    /// });
    /// assert!(failed.unwrap().is_err());
    /// assert!(waiting.unwrap_err().is::<Cancelled>());
    /// ```
    pub fn try_spawn<F, T, E>(
        &'scope self,
        f: F,
    ) -> ScopedJoinHandle<'scope, std::result::Result<T, E>>
    where
        F: FnOnce() -> std::result::Result<T, E> + Send + 'scope,
        T: Send + 'scope,
        E: Send + 'scope,
    {
        self.spawn(move || match catch_unwind(AssertUnwindSafe(f)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(e)) => {
                self.cancel();
                Err(e)
            }
            Err(payload) => {
                if !payload.is::<cancel::Cancelled>() {
                    self.cancel();
                }
                resume_unwind(payload)
            }
        })
    }

    /// Requests the cancellation of all children, including those that are spawned later.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::{self, Cancelled};
    ///
    /// let outcomes = thread::scope(|s| {
    ///     let children = [s.spawn(thread::park), s.spawn(thread::park)];
    ///     s.cancel();
    ///     children.map(|child| child.join())
    /// });
    /// assert!(outcomes.into_iter().all(|outcome| outcome.unwrap_err().is::<Cancelled>()));
    /// ```
    pub fn cancel(&self) {
        self.data.cancel();
    }

    /// Keeps the scope from panicking because of its children's panics, for example in servers. The
    /// panics are still reported (by the process's panic hook and
    /// [`Builder::on_panic`](crate::api::runtime::Builder::on_panic)).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread;
    ///
    /// # std::panic::set_hook(Box::new(|_| ()));
    /// let served = thread::scope(|s| {
    ///     s.tolerate_panics();
    ///     s.spawn(|| panic!("a request with an error in its handler"));
    ///     "the other requests"
    /// });
    /// assert_eq!(served, "the other requests");
    /// ```
    pub fn tolerate_panics(&self) {
        self.data.tolerant.store(true, Ordering::Relaxed);
    }

    /// Waits for the children until `deadline` and then cancels the rest. A child that never waits
    /// does not observe the deadline itself.
    fn cancel_at(&self, deadline: Instant) {
        while self.data.running.load(Ordering::Acquire) != 0 && !cancel::would_unwind() {
            if Instant::now() >= deadline {
                self.cancel();
                return;
            }
            park::park(Wait::Scope(self.data.address()), Some(deadline));
        }
    }
}

impl Builder {
    /// Starts a microprocess of `scope` with these settings. Does not block.
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::{self, Builder, Priority};
    ///
    /// let numbers = [3, 1, 2];
    /// let largest = thread::scope(|s| {
    ///     let builder = Builder::new().priority(Priority::HIGHEST);
    ///     builder.spawn_scoped(s, || numbers.iter().max()).map(|handle| handle.join().unwrap())
    /// })?;
    /// assert_eq!(largest, Some(&3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn_scoped<'scope, 'env, F, T>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let data = &scope.data;
        data.running.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the scope does not return before `running` is 0, and the handle's lifetime keeps
        // the outcome inside 'scope.
        match unsafe { self.spawn_in(Some(data), None, f) } {
            Ok(handle) => {
                data.enrol(handle.thread().waiter());
                Ok(ScopedJoinHandle { handle, data })
            }
            Err(e) => {
                data.running.fetch_sub(1, Ordering::Relaxed);
                Err(e)
            }
        }
    }
}

/// An owned permission to wait for the end of a scoped microprocess and to take its result.
///
/// # Examples
///
/// ```
/// use kumihimo::thread::{self, ScopedJoinHandle};
///
/// let numbers = [3, 1, 4, 1, 5, 9];
/// let (left, right) = numbers.split_at(3);
/// let sum = thread::scope(|s| {
///     let left: ScopedJoinHandle<'_, i32> = s.spawn(|| left.iter().sum());
///     right.iter().sum::<i32>() + left.join().unwrap()
/// });
/// assert_eq!(sum, 23);
/// ```
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<T>,
    data: &'scope ScopeData,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// As [`JoinHandle::join`]: blocks the microprocess, or the kernel thread if it runs none. A
    /// child's panic that is returned here does not make the scope panic.
    ///
    /// # Errors
    /// The payload of the microprocess's panic, or [`Cancelled`](crate::wait::cancel::Cancelled).
    pub fn join(self) -> Result<T> {
        self.data.note_outcome(self.handle.join())
    }

    /// As [`join`](ScopedJoinHandle::join), for at most `time`. Blocks the microprocess, or the
    /// kernel thread if it runs none.
    ///
    /// # Errors
    /// The handle, if the time is over before the microprocess has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread;
    /// use std::time::Duration;
    ///
    /// thread::scope(|s| {
    ///     let child = s.spawn(thread::park);
    ///     let child = child.join_timeout(Duration::from_millis(2)).unwrap_err();
    ///     child.thread().unpark();
    ///     assert!(child.join().is_ok());
    /// });
    /// ```
    pub fn join_timeout(self, time: Duration) -> std::result::Result<Result<T>, Self> {
        self.join_until(after(time))
    }

    /// As [`join`](ScopedJoinHandle::join), until `deadline` at the latest. Blocks the
    /// microprocess, or the kernel thread if it runs none.
    ///
    /// # Errors
    /// The handle, if the deadline passes before the microprocess has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// thread::scope(|s| {
    ///     let deadline = Instant::now() + Duration::from_secs(60);
    ///     let outcome = s.spawn(|| "in time").join_until(deadline);
    ///     assert_eq!(outcome.expect("it ends within a minute").unwrap(), "in time");
    /// });
    /// ```
    pub fn join_until(self, deadline: Instant) -> std::result::Result<Result<T>, Self> {
        let data = self.data;
        match self.handle.join_until(deadline) {
            Ok(outcome) => Ok(data.note_outcome(outcome)),
            Err(handle) => Err(ScopedJoinHandle { handle, data }),
        }
    }

    /// Returns the microprocess.
    pub fn thread(&self) -> &Thread {
        self.handle.thread()
    }

    /// Whether the closure has returned.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Requests the cancellation of the microprocess.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread;
    ///
    /// let (waits, returns) = thread::scope(|s| {
    ///     let (waits, returns) = (s.spawn(thread::park), s.spawn(|| 7));
    ///     waits.cancel();
    ///     (waits.join(), returns.join())
    /// });
    /// assert!(waits.is_err());
    /// assert_eq!(returns.unwrap(), 7);
    /// ```
    pub fn cancel(&self) {
        self.handle.cancel();
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("running", &self.data.running.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle").field("thread", self.thread()).finish_non_exhaustive()
    }
}
