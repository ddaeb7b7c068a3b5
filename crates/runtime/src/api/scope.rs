//! Scopes: microprocesses that may borrow, since their scope waits for them; that are cancelled
//! together; that share a deadline.

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

/// A scope for microprocesses that borrow. See [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    data: ScopeData,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Runs `f` with a scope in which microprocesses can be spawned that borrow from outside it.
/// Returns when all of them have ended.
///
/// As `std::thread::scope`. Blocks the microprocess (or the kernel thread that is none) until they
/// have. If the caller is cancelled meanwhile, the children are cancelled, awaited, and then the
/// caller unwinds.
///
/// # Panics
/// With `f`'s panic; or if a child panicked whose handle was not joined.
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
    // Children borrow from the caller's frames: nothing may unwind before they have ended.
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

/// As [`scope`], with a deadline handed down to all that `f` does and spawns, at whatever depth.
///
/// Sleeps and socket operations end at `deadline` at the latest, those of the caller in `f` too.
/// The scope's children are cancelled then: where they wait for anything else, or as soon as they
/// do. The caller itself is not; what it waits for, its children's end or their messages, ends with
/// them. A deadline of an outer scope holds if it is earlier. `f` that returns in time has its
/// children waited for.
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
    /// Begins a microprocess of this scope.
    ///
    /// # Panics
    /// If it cannot begin; [`Builder::spawn_scoped`] returns the error instead.
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

    /// As [`spawn`](Scope::spawn), for work that may fail: the first child that returns an error
    /// (or panics) cancels all others.
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

    /// Asks all children to end, and those that are spawned later as soon as they begin.
    pub fn cancel(&self) {
        self.data.cancel();
    }

    /// Children's panics are their own affair: the scope does not panic because of them. They are
    /// reported as any (by the process's panic hook,
    /// [`Builder::on_panic`](crate::api::runtime::Builder::on_panic)). For servers, say.
    pub fn tolerate_panics(&self) {
        self.data.tolerant.store(true, Ordering::Relaxed);
    }

    /// Waits for the children up to `deadline` and cancels those that are left: those that never
    /// wait would not notice.
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
    /// Begins a microprocess of `scope` with these settings. Blocks nothing.
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

/// The right to wait for a scoped microprocess's end and to have its result.
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<T>,
    data: &'scope ScopeData,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// As [`JoinHandle::join`]. A child's panic that is returned here does not make the scope
    /// panic.
    ///
    /// # Errors
    /// The payload of its panic, or [`Cancelled`](crate::wait::cancel::Cancelled).
    pub fn join(self) -> Result<T> {
        self.data.note_outcome(self.handle.join())
    }

    /// As [`join`](ScopedJoinHandle::join), at most for `time`.
    ///
    /// # Errors
    /// The handle, if the time is over before the microprocess ends.
    pub fn join_timeout(self, time: Duration) -> std::result::Result<Result<T>, Self> {
        self.join_until(after(time))
    }

    /// As [`join`](ScopedJoinHandle::join), at most until `deadline`.
    ///
    /// # Errors
    /// The handle, if the time is over before the microprocess ends.
    pub fn join_until(self, deadline: Instant) -> std::result::Result<Result<T>, Self> {
        let data = self.data;
        match self.handle.join_until(deadline) {
            Ok(outcome) => Ok(data.note_outcome(outcome)),
            Err(handle) => Err(ScopedJoinHandle { handle, data }),
        }
    }

    /// The microprocess.
    pub fn thread(&self) -> &Thread {
        self.handle.thread()
    }

    /// Whether its closure has returned.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Asks it to end.
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
