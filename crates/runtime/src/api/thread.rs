//! Microprocesses with the interface of `std::thread`, and extensions of it.

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
use crate::upcall::bind;
use crate::wait::sleep::yield_now;
use crate::wait::{cancel, park};

/// Blocks the microprocess (or the kernel thread if it runs none) until its token is available, and
/// takes it. May return without a token. Cancellation point.
///
/// As `std::thread::park`: locks, channels and other operations in between do not consume the
/// token.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// let ready = Arc::new(AtomicBool::new(false));
/// let seen = ready.clone();
/// let waiter = thread::spawn(move || {
///     // The condition decides, since `park` may return without a token.
///     while !seen.load(Ordering::Acquire) {
///         thread::park();
///     }
/// });
/// ready.store(true, Ordering::Release);
/// waiter.thread().unpark();
/// assert!(waiter.join().is_ok());
/// ```
pub fn park() {
    park_limited(None);
}

/// As [`park()`], for at most `time`. Blocks the microprocess until its token is available or the
/// time is over.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
/// use std::time::{Duration, Instant};
///
/// // The token is there already, so the call returns at once.
/// thread::current().unpark();
/// let begun = Instant::now();
/// thread::park_timeout(Duration::from_secs(60));
/// assert!(begun.elapsed() < Duration::from_secs(60));
/// ```
pub fn park_timeout(time: Duration) {
    park_limited(Some(after(time)));
}

/// As [`park()`], until `deadline` at the latest. Blocks the microprocess until its token is
/// available or the deadline has passed.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::time::{Duration, Instant};
///
/// let stop = AtomicBool::new(false);
/// let deadline = Instant::now() + Duration::from_millis(2);
/// while !stop.load(Ordering::Acquire) && Instant::now() < deadline {
///     thread::park_until(deadline);
/// }
/// // No thread has set the flag.
/// assert!(Instant::now() >= deadline);
/// ```
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
                    // A polling loop would starve other microprocesses.
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

/// Returns the caller's own priority.
///
/// # Examples
///
/// ```
/// use kumihimo::thread::{self, Builder, Priority};
///
/// let handle = Builder::new().priority(Priority::LOWEST).spawn(thread::current_priority)?;
/// assert_eq!(handle.join().unwrap(), Priority::LOWEST);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn current_priority() -> Priority {
    current().priority()
}

impl Builder {
    /// Starts a microprocess. Does not block, except that a call without a runtime starts the
    /// default one, as [`ensure`](crate::api::runtime::ensure) does.
    ///
    /// # Errors
    /// `InvalidInput` for a stack beyond 1 GiB; `OutOfMemory`, or the kernel's error, if there is
    /// no memory, address space or room within the runtime's limits. Other errors if the runtime is
    /// ending, or cannot be started.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::Builder;
    /// use std::io::ErrorKind;
    ///
    /// let handle = Builder::new().name("sum".into()).spawn(|| (1..=4).sum::<u32>())?;
    /// assert_eq!(handle.join().unwrap(), 10);
    ///
    /// let error = Builder::new().stack_size(2 << 30).spawn(|| ()).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidInput);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: closure and result are 'static.
        unsafe { self.spawn_unchecked(f) }
    }

    /// As [`spawn`](Builder::spawn), for closures that borrow.
    ///
    /// # Safety
    /// As for `std::thread::Builder::spawn_unchecked`: the microprocess must end before the data
    /// that it borrows.
    pub unsafe fn spawn_unchecked<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // SAFETY: the caller's promise.
        unsafe { self.spawn_in(None, None, f) }
    }

    /// As [`spawn_unchecked`](Builder::spawn_unchecked), and passes the address of the new
    /// thread-local block (its FS base) to `on_block` before the microprocess may run: 0 for a
    /// lean one, and no call at all for a kernel thread (1:1 mode). `on_block` must not switch.
    ///
    /// # Errors
    /// As [`spawn`](Builder::spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::Builder;
    /// use std::cell::Cell;
    ///
    /// let block = Cell::new(0);
    /// // SAFETY: the closure borrows nothing.
    /// let handle = unsafe { Builder::new().spawn_on_block(&|base| block.set(base), || 7) }?;
    /// println!("the thread-local block is at {:#x}", block.get());
    /// assert_eq!(handle.join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Safety
    /// As for `spawn_unchecked`.
    pub unsafe fn spawn_on_block<F, T>(
        self,
        on_block: &dyn Fn(usize),
        f: F,
    ) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // SAFETY: the caller's promise.
        unsafe { self.spawn_in(None, Some(on_block), f) }
    }

    /// As [`spawn_unchecked`](Builder::spawn_unchecked), in a scope.
    ///
    /// # Safety
    /// As for `spawn_unchecked`; in addition, the scope waits for the child.
    pub(crate) unsafe fn spawn_in<F, T>(
        self,
        scope: Option<&ScopeData>,
        on_block: Option<&dyn Fn(usize)>,
        f: F,
    ) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let order = match self.plan(scope, on_block)? {
            Plan::Microprocess(order) => order,
            Plan::KernelThread { name, stack_size } => {
                // SAFETY: the caller's promise.
                let handle = unsafe { one_to_one::spawn(name, stack_size, scope, Box::new(f))? };
                return Ok(JoinHandle { inner: Inner::Kernel(handle) });
            }
        };
        let started = spawn::spawn(&order, scope, f)?;
        Ok(JoinHandle { inner: Inner::Micro(Micro::new(started, order.name)) })
    }

    /// Checks what does not depend on the closure.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn plan<'a>(
        self,
        scope: Option<&ScopeData>,
        on_block: Option<&'a dyn Fn(usize)>,
    ) -> io::Result<Plan<'a>> {
        let kind = match Carrier::current() {
            Some(carrier) => carrier.vp().instance().default_kind,
            None => default_kind_outside()?,
        };
        // A child of a bound microprocess inherits what that one's kernel thread has: a filter,
        // credentials, namespaces. Only a thread that this kernel thread starts does.
        if Instance::one_to_one() || bind::is_bound() || foreign_thread::is_one_to_one() {
            return Ok(Plan::KernelThread { name: self.name, stack_size: self.stack_size });
        }
        if self.bound {
            instance::visit(|instance| instance.map_or(Ok(()), bind::check_room))?;
        }
        let mut order = self.order(kind)?;
        order.on_block = on_block;
        order.deadline = cancel::earlier(order.deadline, scope.and_then(ScopeData::deadline));
        Ok(Plan::Microprocess(order))
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn order<'a>(self, default: SlotKind) -> io::Result<SpawnRequest<'a>> {
        let kind = match (self.stack_size, self.lean) {
            (None, false) => default,
            (size, lean) => SlotKind::for_stack(size.unwrap_or_else(default_stack), lean)?,
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
            bound: self.bound,
            deadline: cancel::deadline(),
            due_ns: self.deadline.and_then(due_ns),
            on_block: None,
        })
    }
}

/// What a builder starts.
enum Plan<'a> {
    Microprocess(SpawnRequest<'a>),
    /// In 1:1 mode, and as a child of a bound microprocess.
    KernelThread {
        name: Option<String>,
        stack_size: Option<usize>,
    },
}

/// Returns the default kind for a caller without a VP. Starts a runtime if there is none.
#[cold]
fn default_kind_outside() -> io::Result<SlotKind> {
    if crate::kernel_thread::fork::is_child() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this process was forked from one that ran a runtime: no microprocess can start here before exec",
        ));
    }
    runtime::ensure()?;
    instance::visit(|i| i.map(|i| i.default_kind))
        .map_or_else(|| SlotKind::for_stack(DEFAULT_STACK, false), Ok)
}

/// Returns the runtime's stack size in bytes.
#[cold]
fn default_stack() -> usize {
    instance::visit(|i| i.map_or(DEFAULT_STACK, |i| i.settings.stack_size))
}

/// Returns the deadline on the instance's clock. The record has no place for 0.
fn due_ns(deadline: Instant) -> Option<u64> {
    match Carrier::current() {
        Some(carrier) => Some(carrier.vp().instance().at(deadline).max(1)),
        None => instance::visit(|i| i.map(|i| i.at(deadline).max(1))),
    }
}

/// Starts a microprocess with the default settings: `Builder::new().spawn(f)`.
///
/// The caller continues, and a VP runs the child later. Does not block, except as
/// [`Builder::spawn`] does without a runtime. Dropping the handle detaches the child.
///
/// # Panics
/// If the microprocess cannot start; [`Builder::spawn`] returns the error instead.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
///
/// let factorial = thread::spawn(|| (1..=10).product::<u64>());
/// assert_eq!(factorial.join().unwrap(), 3_628_800);
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

/// Gives the calling microprocess a kernel thread of its own for the rest of its life. The kernel
/// thread ends with it and serves no other microprocess.
///
/// Call it before a change that the kernel keeps per kernel thread and that cannot be undone: a
/// seccomp or Landlock filter, credentials of a single thread, a namespace, CPU affinity. The C
/// library's functions for these bind the caller by themselves; a crate that makes such system
/// calls directly (rustix) does not. What it spawns afterwards runs on kernel threads that inherit
/// the change, as the children of a thread do.
///
/// A bound microprocess is scheduled by the kernel, whatever its priority, and waits on its kernel
/// thread, which costs what a thread of std costs. Does nothing on a kernel thread that runs no
/// microprocess, and if the caller is bound. Does not block.
///
/// # Errors
/// `WouldBlock` if the limit on kernel threads leaves none to run the other microprocesses.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
///
/// let handle = thread::spawn(|| -> std::io::Result<u32> {
///     thread::bind()?;
///     // A filter for this kernel thread would be installed here.
///     Ok((1..=10).sum())
/// });
/// assert_eq!(handle.join().unwrap()?, 55);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn bind() -> io::Result<()> {
    bind::bind().unwrap_or(Ok(()))
}
