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
        park::park(Wait::Scope, None);
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
///
/// Sleeps and socket operations end at `deadline` at the latest, including those of the caller in
/// `f`. At the deadline the scope's children are cancelled: where they wait for anything else, or
/// as soon as they do. The caller itself is not cancelled; its waits for the end or the messages of
/// its children end with them. A deadline of an outer scope applies if it is earlier. If `f`
/// returns in time, its children are waited for.
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
    /// Starts a microprocess of this scope.
    ///
    /// # Panics
    /// If it cannot start; [`Builder::spawn_scoped`] returns the error instead.
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
    pub fn cancel(&self) {
        self.data.cancel();
    }

    /// Keeps the scope from panicking because of its children's panics, for example in servers. The
    /// panics are still reported (by the process's panic hook and
    /// [`Builder::on_panic`](crate::api::runtime::Builder::on_panic)).
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
            park::park(Wait::Scope, Some(deadline));
        }
    }
}

impl Builder {
    /// Starts a microprocess of `scope` with these settings. Does not block.
    ///
    /// # Errors
    /// As [`Builder::spawn`].
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
        match unsafe { self.spawn_in(Some(data), f) } {
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
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<T>,
    data: &'scope ScopeData,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// As [`JoinHandle::join`]. A child's panic that is returned here does not make the scope
    /// panic.
    ///
    /// # Errors
    /// The payload of the microprocess's panic, or [`Cancelled`](crate::wait::cancel::Cancelled).
    pub fn join(self) -> Result<T> {
        self.data.note_outcome(self.handle.join())
    }

    /// As [`join`](ScopedJoinHandle::join), for at most `time`.
    ///
    /// # Errors
    /// The handle, if the time is over before the microprocess has ended.
    pub fn join_timeout(self, time: Duration) -> std::result::Result<Result<T>, Self> {
        self.join_until(after(time))
    }

    /// As [`join`](ScopedJoinHandle::join), until `deadline` at the latest.
    ///
    /// # Errors
    /// The handle, if the deadline passes before the microprocess has ended.
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
