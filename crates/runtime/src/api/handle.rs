//! Handles of microprocesses and kernel threads.

use std::fmt;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kumihimo_policy::Priority;
use kumihimo_resource::id::{Id, Printed};

use crate::kernel_thread::gs_record::current_mp;
use crate::microprocess::foreign_thread;
use crate::microprocess::foreign_thread::ForeignThread;
use crate::microprocess::waiter::{Waiter, Who};
use crate::scheduler::reprioritise;
use crate::upcall::regain::switch_point;
use crate::wait::cancel;

/// ID of a microprocess, unique on the whole machine: `kumi ps` shows it, and `kumi suspend` and
/// `kumihimo::machine` accept it. IDs are never reused. The ID of a kernel thread that runs no
/// microprocess is valid within its process only.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
///
/// let handle = thread::spawn(|| thread::current().id());
/// let id = handle.thread().id();
/// assert_eq!(handle.join().unwrap(), id);
/// assert_ne!(id, thread::current().id());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadId(NonZero<u64>);

impl ThreadId {
    fn new(id: u64) -> ThreadId {
        ThreadId(NonZero::new(id).unwrap_or(NonZero::<u64>::MAX))
    }

    /// Returns the ID as an ID of the resource table; `None` for a kernel thread that runs no
    /// microprocess.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Kind;
    /// use kumihimo::thread;
    ///
    /// let handle = thread::spawn(|| ());
    /// let id = handle.thread().id().resource().expect("a microprocess");
    /// assert_eq!(id.kind(), Kind::MICROPROCESS);
    /// // `main` is a kernel thread.
    /// assert!(thread::current().id().resource().is_none());
    /// ```
    pub fn resource(self) -> Option<Id> {
        Id::from_bits(self.0.get())
    }

    /// Returns the ID as a number, never 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread;
    ///
    /// let (first, second) = (thread::spawn(|| ()), thread::spawn(|| ()));
    /// assert_ne!(first.thread().id().as_u64(), second.thread().id().as_u64());
    /// ```
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

/// A handle to a microprocess, or to a kernel thread that runs none. Cheap to clone.
///
/// # Examples
///
/// ```
/// use kumihimo::thread::{self, Thread};
///
/// let handle = thread::Builder::new().name("parked".into()).spawn(thread::park)?;
/// // A clone can be passed to the thread that wakes this one.
/// let parked: Thread = handle.thread().clone();
/// assert_eq!(parked.name(), Some("parked"));
/// parked.unpark();
/// handle.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Thread {
    pub(crate) who: Waiter,
    pub(crate) name: Option<Arc<str>>,
}

impl Thread {
    /// Makes the thread's park token available: wakes the thread if it is in
    /// [`park`](crate::thread::park), otherwise ends its next `park` at once.
    ///
    /// Never blocks. Everything before the call happens before the return of `park`. Does nothing
    /// if the thread has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread;
    ///
    /// let handle = thread::spawn(|| {
    ///     thread::park();
    ///     thread::park();
    ///     "unparked twice"
    /// });
    /// // A second token is not stored, so this repeats until both calls have returned.
    /// while !handle.is_finished() {
    ///     handle.thread().unpark();
    ///     thread::yield_now();
    /// }
    /// assert_eq!(handle.join().unwrap(), "unparked twice");
    /// ```
    pub fn unpark(&self) {
        if let Some(token) = token_of(&self.who) {
            token.store(1, Ordering::Release);
            self.who.wake();
            switch_point();
        }
    }

    /// Returns the thread's ID.
    pub fn id(&self) -> ThreadId {
        ThreadId::new(self.who.id())
    }

    /// Returns the thread's name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the thread's own priority. Kernel threads that run no microprocess count as 32.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::{self, Priority};
    ///
    /// let handle = thread::Builder::new().priority(Priority::HIGHEST).spawn(thread::park)?;
    /// assert_eq!(handle.thread().priority(), Priority::HIGHEST);
    /// handle.thread().unpark();
    /// handle.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn priority(&self) -> Priority {
        match self.who.who() {
            Who::Micro(who) => {
                Priority::new(who.mp.priority.load(Ordering::Relaxed)).unwrap_or_default()
            }
            Who::Foreign(_) => Priority::DEFAULT,
        }
    }

    /// Sets the thread's own priority; an inherited priority stays.
    ///
    /// The VP that queues or runs the microprocess is notified at once (*Changed* of paper P0). A
    /// queued microprocess is requeued; a running one gives way at its next switch point if a
    /// runnable one outranks it now. Never blocks, but is a switch point. Does nothing on kernel
    /// threads, including 1:1 threads, and if the microprocess has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::{self, Priority};
    ///
    /// let handle = thread::spawn(thread::park);
    /// handle.thread().set_priority(Priority::LOWEST);
    /// assert_eq!(handle.thread().priority(), Priority::LOWEST);
    /// handle.thread().unpark();
    /// handle.join().unwrap();
    /// ```
    pub fn set_priority(&self, priority: Priority) {
        if let Who::Micro(who) = self.who.who()
            && who.is_alive()
        {
            reprioritise::set(*who, priority);
            switch_point();
        }
    }

    /// Requests the cancellation: the thread unwinds at its next cancellation point (see
    /// [`cancel`]). Never blocks. Does nothing on kernel threads that this crate's `spawn` did not
    /// start, and if the thread has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::{self, Cancelled};
    /// use std::time::Duration;
    ///
    /// let handle = thread::spawn(|| thread::sleep(Duration::from_secs(3600)));
    /// handle.thread().cancel();
    /// assert!(handle.join().unwrap_err().is::<Cancelled>());
    /// ```
    pub fn cancel(&self) {
        cancel::request(&self.who);
    }

    pub(crate) fn waiter(&self) -> &Waiter {
        &self.who
    }

    pub(crate) fn who(&self) -> &Who {
        self.who.who()
    }

    /// Whether this is a microprocess, and not a kernel thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{self, Mode};
    /// use kumihimo::thread;
    ///
    /// let handle = thread::spawn(|| thread::current().is_microprocess());
    /// assert_eq!(handle.join().unwrap(), runtime::mode() == Mode::Microprocesses);
    /// // `main` is a kernel thread.
    /// assert!(!thread::current().is_microprocess());
    /// ```
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

pub(crate) fn token_of(who: &Waiter) -> Option<&AtomicU32> {
    match who.who() {
        Who::Micro(r) => r.is_alive().then_some(&r.mp.token),
        Who::Foreign(f) => Some(&f.token),
    }
}

/// Returns the caller: a microprocess (also inside [`blocking`](crate::thread::blocking)), or a
/// kernel thread.
///
/// # Examples
///
/// ```
/// use kumihimo::thread;
///
/// let own_name = || thread::current().name().map(str::to_owned);
/// let handle = thread::Builder::new().name("indexer".into()).spawn(own_name)?;
/// assert_eq!(handle.join().unwrap().as_deref(), Some("indexer"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn current() -> Thread {
    match current_mp() {
        Some(mp) => {
            // SAFETY: the caller is this microprocess, so it may read its own name.
            Thread { who: Waiter::of(mp.reference()), name: unsafe { (*mp.name.get()).clone() } }
        }
        None => Thread {
            who: Waiter::of_foreign(foreign_thread::foreign()),
            name: std::thread::current().name().map(Arc::from),
        },
    }
}
