//! Microprocesses as users see them: `std::thread`, and what goes beyond it.

use std::fmt;
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kumihimo_policy::{Priority, Why};
use kumihimo_resource::id::{Id, Printed};

mod join_handle;

pub use crate::lifecycle::scope::{Scope, ScopedJoinHandle, scope, scope_until};
pub use crate::upcall::handoff::blocking;
pub use join_handle::JoinHandle;
pub(crate) use join_handle::{Inner, Micro};

use crate::api::runtime;
use crate::lifecycle::priority;
use crate::lifecycle::scope::ScopeData;
use crate::lifecycle::spawn::{self, SpawnRequest};
use crate::microprocess::foreign_thread;
use crate::process::futex;
use crate::scheduler::carrier::{Carrier, current_mp};
use crate::scheduler::instance::{self, Instance};
use crate::upcall::sticky;
use crate::wait::cancel;
use crate::wait::park::{self, ForeignThread, Wait, Waiter, Who};

pub use crate::lifecycle::suspend::Suspended;
pub use std::thread::{AccessError, LocalKey, Result, available_parallelism, panicking};

/// Which microprocess, on the whole machine: what `kumi ps` shows, and what `kumi suspend` and
/// `kumihimo::machine` take. Never that of another, after its end neither. A kernel thread that is
/// no microprocess has one that is good within its process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadId(NonZero<u64>);

impl ThreadId {
    fn new(id: u64) -> ThreadId {
        ThreadId(NonZero::new(id).unwrap_or(NonZero::<u64>::MAX))
    }

    /// As an id of the resource table: a microprocess's. None for a kernel thread that is none.
    pub fn resource(self) -> Option<Id> {
        Id::from_bits(self.0.get())
    }

    /// The id as a number, never 0.
    pub fn as_u64(self) -> NonZero<u64> {
        self.0
    }
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadId({self})")
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printed(self.0.get()).fmt(f)
    }
}

/// A handle to a microprocess (or to a kernel thread that is none). Cheap to clone.
#[derive(Clone)]
pub struct Thread {
    who: Waiter,
    name: Option<Arc<str>>,
}

impl Thread {
    /// Makes the park token of this one available: wakes it if it is in [`park()`], else ends its
    /// next one at once.
    ///
    /// Never blocks. What happened before happens before the return of `park`. Nothing if it has
    /// ended.
    pub fn unpark(&self) {
        if let Some(token) = token_of(&self.who) {
            token.store(1, Ordering::Release);
            self.who.wake();
            park::switch_point();
        }
    }

    /// Its id.
    pub fn id(&self) -> ThreadId {
        ThreadId::new(self.who.id())
    }

    /// Its name, if it was given one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Its own priority. Kernel threads that are no microprocesses count as 32.
    pub fn priority(&self) -> Priority {
        match self.who.who() {
            Who::Micro(who) => {
                Priority::new(who.mp.priority.load(Ordering::Relaxed)).unwrap_or_default()
            }
            Who::Foreign(_) => Priority::DEFAULT,
        }
    }

    /// Sets its own priority; what it inherits stays. The VP that queues or runs it is notified at
    /// once (P0's *Changed*): a queued one is placed anew, a running one gives way at its next
    /// switch point if something runnable outranks it now. Never blocks, but is a switch point.
    /// Nothing on kernel threads, 1:1 ones included, or if it
    /// has ended.
    pub fn set_priority(&self, priority: Priority) {
        if let Who::Micro(who) = self.who.who()
            && who.is_alive()
        {
            priority::set(*who, priority);
            park::switch_point();
        }
    }

    /// Asks it to end: it unwinds at its next cancellation point (see [`cancel`]). Never blocks.
    /// Nothing on kernel threads that were not begun by this crate's `spawn`, or if it has ended.
    pub fn cancel(&self) {
        cancel::request(&self.who);
    }

    /// Whether it has not ended yet. A kernel thread that is no microprocess counts as alive.
    pub(crate) fn is_alive(&self) -> bool {
        match self.who.who() {
            Who::Micro(who) => who.is_alive(),
            Who::Foreign(thread) => thread.one_to_one.is_alive(),
        }
    }

    pub(crate) fn who(&self) -> &Who {
        self.who.who()
    }

    /// False for a kernel thread that is no microprocess.
    pub fn is_microprocess(&self) -> bool {
        self.who.is_microprocess()
    }

    pub(crate) fn foreign(f: Arc<ForeignThread>, name: Option<Arc<str>>) -> Thread {
        Thread { who: Waiter::of_foreign(f), name }
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("id", &self.id())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

fn token_of(who: &Waiter) -> Option<&AtomicU32> {
    match who.who() {
        Who::Micro(r) => r.is_alive().then_some(&r.mp.token),
        Who::Foreign(f) => Some(&f.token),
    }
}

/// The caller: a microprocess (also inside [`blocking`]), or a kernel thread.
pub fn current() -> Thread {
    match current_mp() {
        Some(mp) => {
            // SAFETY: the caller is this microprocess, so its name is its own to read.
            Thread { who: Waiter::of(mp.reference()), name: unsafe { (*mp.name.get()).clone() } }
        }
        None => Thread {
            who: Waiter::of_foreign(park::foreign()),
            name: std::thread::current().name().map(Arc::from),
        },
    }
}

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
        None => Waiter::of_foreign(park::foreign()),
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

#[cold]
fn give_way() {
    if let Some(carrier) = Carrier::regain() {
        carrier.give_way(Why::Yielded);
    }
}

/// Gives the virtual processor to others of the same priority or above, if there are any.
/// Cancellation point.
#[inline]
pub fn yield_now() {
    match Carrier::regain() {
        Some(carrier) => {
            let Some(mp) = carrier.running() else { return };
            if mp.state.is_cancelled() {
                // It may unwind, and masked it may switch: not with a carrier in hand.
                drop(carrier);
                cancel::point();
                return give_way();
            }
            carrier.give_way(Why::Yielded);
        }
        None => {
            cancel::point();
            match sticky::leave_to_yield() {
                Some(carrier) => drop(carrier.give_way(Why::Yielded)),
                None => std::thread::yield_now(),
            }
        }
    }
}

/// Blocks the microprocess for at least `time`, or until its scope's deadline. A time of zero
/// yields. Cancellation point.
pub fn sleep(time: Duration) {
    sleep_until(after(time));
}

/// Blocks the microprocess until `deadline`, or until its scope's deadline if that is earlier.
/// Cancellation point.
pub fn sleep_until(deadline: Instant) {
    cancel::point();
    let deadline = cancel::deadline().map_or(deadline, |d| d.min(deadline));
    if !park::waits_as_microprocess() && !foreign_thread::is_one_to_one() {
        // Also inside `blocking`, and on foreign kernel threads, which nobody wakes early.
        while Instant::now() < deadline {
            futex::nap(deadline);
        }
        return;
    }
    let mut waited = false;
    while Instant::now() < deadline && !cancel::would_unwind() {
        park::park(Wait::Sleep, Some(deadline));
        waited = true;
    }
    // A polling loop would starve the others.
    if waited { cancel::point() } else { yield_now() }
}

/// `time` from now; a time beyond what the clock can hold is 30 years.
pub(crate) fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + Duration::from_secs(30 * 365 * 24 * 3600))
}

/// The caller's own priority.
pub fn current_priority() -> Priority {
    current().priority()
}

/// How a microprocess begins. As `std::thread::Builder`, and more.
#[derive(Debug, Default)]
#[must_use = "a builder begins nothing until `spawn`"]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
    priority: Option<Priority>,
    lean: bool,
    child_first: bool,
    deadline: Option<Instant>,
}

impl Builder {
    /// The defaults: no name, the runtime's stack size, priority 32, own TLS, parent first.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names it. Shown by reports, panics and the overflow message.
    ///
    /// # Panics
    /// At `spawn`, if the name holds a NUL byte, as in std.
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// Usable stack in bytes, at least. Below the machine's minimum, the minimum; rounded up to
    /// what the slot gives (about 32 KiB, 64 KiB, ... 1 GiB, with guard, record and thread-local
    /// storage in it); more than the largest gives is an error of `spawn`.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Its priority. Default 32.
    pub fn priority(mut self, priority: Priority) -> Builder {
        self.priority = Some(priority);
        self
    }

    /// The child runs at once and the parent goes back into the queue, before the others of its
    /// level. For trees of forks and joins: few are alive at a time. Default: parent first, as in
    /// std.
    pub fn child_first(mut self, yes: bool) -> Builder {
        self.child_first = yes;
        self
    }

    /// When its work is due: what a deadline policy orders by. Nothing happens when it passes.
    pub fn due(mut self, deadline: Instant) -> Builder {
        self.deadline = Some(deadline);
        self
    }

    /// Shares the kernel thread's thread-local storage instead of having its own: half the memory,
    /// and a faster switch between lean ones.
    ///
    /// # Safety
    /// The closure, and all that it calls, keeps no thread-local state across a switch point: no
    /// `thread_local!` with a changing value, no `errno`, no C++ exception, no panic in flight, no
    /// lock of std or pthreads held, no `RefCell`-like borrow counted in thread-local storage.
    /// Another microprocess, or the kernel thread itself, would see or destroy it.
    pub unsafe fn lean(mut self, yes: bool) -> Builder {
        self.lean = yes;
        self
    }

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
            return unsafe {
                crate::lifecycle::one_to_one::spawn(self.name, self.stack_size, scope, f)
            };
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
            (size, lean) => runtime::kind(size.unwrap_or(runtime::DEFAULT_STACK), lean)?,
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
        .map_or_else(|| runtime::kind(runtime::DEFAULT_STACK, false), Ok)
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
