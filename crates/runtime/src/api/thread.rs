//! Microprocesses as users see them: `std::thread`, and what goes beyond it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kumihimo_policy::Priority;

use crate::api::handle::{current, token_of};
use crate::api::join_handle::{Inner, JoinHandle, Micro};
use crate::api::{one_to_one, runtime};
use crate::config::DEFAULT_STACK;
use crate::kernel_thread::gs_record::current_mp;
use crate::lifecycle::scope_data::ScopeData;
use crate::lifecycle::spawn::{self, SpawnRequest};
use crate::lifecycle::thread_builder::Builder;
use crate::memory::pool::SlotKind;
use crate::microprocess::foreign_thread;
use crate::microprocess::wait_reason::Wait;
use crate::microprocess::waiter::Waiter;
use crate::process::clock::after;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::{self, Instance};
use crate::wait::sleep::yield_now;
use crate::wait::{cancel, park};

/// Blocks the microprocess until its token is there, and takes it. May return without one.
/// Cancellation point.
///
/// As `std::thread::park`: the token survives locks, channels and everything else in between.
pub fn park() {
    park_limited(None);
}

/// As [`park()`], at most for `time`.
pub fn park_timeout(time: Duration) {
    park_limited(Some(after(time)));
}

/// As [`park()`], at most until `deadline`.
pub fn park_until(deadline: Instant) {
    park_limited(Some(deadline));
}

fn park_limited(deadline: Option<Instant>) {
    cancel::point();
    let me = match current_mp() {
        Some(mp) => Waiter::of(mp.reference()),
        None => Waiter::of_foreign(foreign_thread::foreign()),
    };
    if let Some(token) = token_of(&me) {
        let mut waited = false;
        while token.swap(0, Ordering::Acquire) == 0 {
            if deadline.is_some_and(|d| Instant::now() >= d) || cancel::would_unwind() {
                if !waited {
                    // A polling loop would starve the others.
                    yield_now();
                }
                break;
            }
            park::park(Wait::Park, deadline);
            waited = true;
        }
    }
    cancel::point();
}

/// The caller's own priority.
pub fn current_priority() -> Priority {
    current().priority()
}

impl Builder {
    /// Begins a microprocess. Blocks nothing.
    ///
    /// # Errors
    /// `InvalidInput`: a stack beyond 1 GiB. `OutOfMemory` or what the kernel says: no memory,
    /// address space or room within the runtime's limits. Other: the runtime is ending; no runtime
    /// can be started.
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: 'static closure and result outlive everything.
        unsafe { self.spawn_unchecked(f) }
    }

    /// As [`spawn`](Builder::spawn), for closures that borrow.
    ///
    /// # Safety
    /// As for `std::thread::Builder::spawn_unchecked`: the caller sees to it that the microprocess
    /// has ended before what it borrows.
    pub unsafe fn spawn_unchecked<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // SAFETY: the caller's promise.
        unsafe { self.spawn_in(None, f) }
    }

    /// As [`spawn_unchecked`](Builder::spawn_unchecked), in a scope.
    ///
    /// # Safety
    /// As there; and the scope waits for the child.
    pub(crate) unsafe fn spawn_in<F, T>(
        self,
        scope: Option<&ScopeData>,
        f: F,
    ) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        if Carrier::current().is_none() {
            if crate::kernel_thread::fork::is_child() {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this process was forked from one that ran a runtime: no microprocess can begin here before exec",
                ));
            }
            runtime::ensure()?;
        }
        if Instance::one_to_one() {
            // SAFETY: the caller's promise.
            let handle = unsafe { one_to_one::spawn(self.name, self.stack_size, scope, f)? };
            return Ok(JoinHandle { inner: Inner::Kernel(handle) });
        }
        let mut order = self.order()?;
        order.deadline = cancel::earlier(order.deadline, scope.and_then(ScopeData::deadline));
        let name = order.name.clone();
        Ok(JoinHandle { inner: Inner::Micro(Micro::new(spawn::spawn(&order, scope, f)?, name)) })
    }

    #[inline]
    fn order(self) -> io::Result<SpawnRequest> {
        let kind = match (self.stack_size, self.lean) {
            (None, false) => default_kind()?,
            (size, lean) => SlotKind::for_stack(size.unwrap_or(DEFAULT_STACK), lean)?,
        };
        let name = self.name.map(|name| {
            assert!(
                !name.as_bytes().contains(&0),
                "thread name may not contain interior null bytes"
            );
            Arc::from(name)
        });
        Ok(SpawnRequest {
            kind,
            priority: self.priority.unwrap_or_default(),
            name,
            child_first: self.child_first,
            deadline: cancel::deadline(),
            due_ns: self.deadline.and_then(due_ns),
        })
    }
}

#[inline]
fn default_kind() -> io::Result<crate::memory::pool::SlotKind> {
    match Carrier::current() {
        Some(carrier) => Ok(carrier.vp().instance().default_kind),
        None => default_kind_outside(),
    }
}

#[cold]
fn default_kind_outside() -> io::Result<crate::memory::pool::SlotKind> {
    instance::visit(|i| i.map(|i| i.default_kind))
        .map_or_else(|| SlotKind::for_stack(DEFAULT_STACK, false), Ok)
}

fn due_ns(deadline: Instant) -> Option<u64> {
    match Carrier::current() {
        Some(carrier) => Some(carrier.vp().instance().at(deadline)),
        None => instance::visit(|i| i.map(|i| i.at(deadline))),
    }
}

/// Begins a microprocess with the defaults: `Builder::new().spawn(f)`.
///
/// The caller goes on; the child runs when a VP gets to it. Dropping the handle lets it go on
/// alone.
///
/// # Panics
/// If it cannot begin; [`Builder::spawn`] returns the error instead.
///
/// ```
/// let h = kumihimo_runtime::thread::spawn(|| 6 * 7);
/// assert_eq!(h.join().unwrap(), 42);
/// ```
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match Builder::new().spawn(f) {
        Ok(handle) => handle,
        Err(e) => panic!("failed to spawn microprocess: {e}"),
    }
}
