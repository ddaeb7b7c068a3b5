//! Handles: a microprocess, or a kernel thread, as users see it.

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
    pub(crate) who: Waiter,
    pub(crate) name: Option<Arc<str>>,
}

impl Thread {
    /// Makes the park token of this one available: wakes it if it is in
    /// [`park`](crate::thread::park), else ends its next one at once.
    ///
    /// Never blocks. What happened before happens before the return of `park`. Nothing if it has
    /// ended.
    pub fn unpark(&self) {
        if let Some(token) = token_of(&self.who) {
            token.store(1, Ordering::Release);
            self.who.wake();
            switch_point();
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
            reprioritise::set(*who, priority);
            switch_point();
        }
    }

    /// Asks it to end: it unwinds at its next cancellation point (see [`cancel`]). Never blocks.
    /// Nothing on kernel threads that were not begun by this crate's `spawn`, or if it has ended.
    pub fn cancel(&self) {
        cancel::request(&self.who);
    }

    pub(crate) fn waiter(&self) -> &Waiter {
        &self.who
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

pub(crate) fn token_of(who: &Waiter) -> Option<&AtomicU32> {
    match who.who() {
        Who::Micro(r) => r.is_alive().then_some(&r.mp.token),
        Who::Foreign(f) => Some(&f.token),
    }
}

/// The caller: a microprocess (also inside [`blocking`](crate::thread::blocking)), or a kernel
/// thread.
pub fn current() -> Thread {
    match current_mp() {
        Some(mp) => {
            // SAFETY: the caller is this microprocess, so its name is its own to read.
            Thread { who: Waiter::of(mp.reference()), name: unsafe { (*mp.name.get()).clone() } }
        }
        None => Thread {
            who: Waiter::of_foreign(foreign_thread::foreign()),
            name: std::thread::current().name().map(Arc::from),
        },
    }
}
