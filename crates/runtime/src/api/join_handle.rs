//! Join handles of microprocesses, and of kernel threads in 1:1 mode.

use std::fmt;
use std::sync::Arc;
use std::thread::Result;
use std::time::{Duration, Instant};

use crate::api::handle::Thread;
use crate::api::one_to_one;
use crate::kernel_thread::gs_record::current_mp;
use crate::lifecycle::spawn::Started;
use crate::lifecycle::{join, outcome};
use crate::microprocess::record::Ref;
use crate::microprocess::waiter::{Waiter, Who};
use crate::process::clock::after;
use crate::wait::cancel;

pub(crate) struct Micro<T> {
    /// The microprocess, never a kernel thread.
    thread: Thread,
    outcome: *mut Result<T>,
}

// SAFETY: only one side at a time accesses the outcome (`join.rs`), and the constructors require
// `T: Send`.
unsafe impl<T> Send for Micro<T> {}
// SAFETY: shared access only reads atomics and the name.
unsafe impl<T> Sync for Micro<T> {}

impl<T> Micro<T> {
    pub(crate) fn new(started: Started<T>, name: Option<Arc<str>>) -> Micro<T> {
        Micro { thread: Thread { who: Waiter::of(started.who), name }, outcome: started.outcome }
    }

    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }

    #[inline]
    fn who(&self) -> Ref {
        match self.thread.who.who() {
            Who::Micro(who) => *who,
            Who::Foreign(_) => unreachable!("`new` put a microprocess there"),
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        join::is_finished(self.who().mp)
    }

    /// Waits for the end. Returns false if the deadline passed or the caller was cancelled.
    #[inline]
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> bool {
        let who = self.who();
        assert!(
            current_mp().is_none_or(|mp| mp.reference() != who),
            "failed to join thread: a microprocess cannot wait for its own end"
        );
        join::wait(who, deadline)
    }

    // Reads the fields one by one. The handle may have been written a moment ago, and a combined
    // load of two fields would stall until both stores complete.
    #[inline]
    pub(crate) fn take(self) -> Result<T> {
        let mut me = std::mem::ManuallyDrop::new(self);
        if me.thread.name.is_some() {
            me.thread.name = None;
        }
        // SAFETY: the caller has waited; `self` is consumed, so this is the only call.
        unsafe { outcome::take(me.who().mp, me.outcome) }
    }
}

impl<T> Drop for Micro<T> {
    fn drop(&mut self) {
        if join::detach(self.who().mp) {
            // SAFETY: `detach` returned true, so the outcome exists and belongs to the caller.
            drop(unsafe { outcome::take(self.who().mp, self.outcome) });
        }
    }
}

pub(crate) enum Inner<T> {
    Micro(Micro<T>),
    Kernel(one_to_one::Handle<T>),
}

/// An owned permission to wait for the end of a microprocess and to take its result. Dropping the
/// handle detaches the microprocess.
///
/// # Examples
///
/// ```
/// use kumihimo::thread::{self, JoinHandle};
///
/// let squares: Vec<JoinHandle<u32>> = (1..=4).map(|n| thread::spawn(move || n * n)).collect();
/// let sum: u32 = squares.into_iter().map(|square| square.join().unwrap()).sum();
/// assert_eq!(sum, 30);
/// ```
pub struct JoinHandle<T> {
    pub(crate) inner: Inner<T>,
}

impl<T> JoinHandle<T> {
    /// Waits for the microprocess to end, and returns its result. Blocks the microprocess, or the
    /// kernel thread if it runs none. Cancellation point: a cancelled caller unwinds, which
    /// detaches the microprocess.
    ///
    /// Everything that the microprocess did happens before the return, and its thread-local
    /// destructors have run.
    ///
    /// # Errors
    /// The payload of the microprocess's panic, or [`Cancelled`](crate::wait::cancel::Cancelled).
    ///
    /// # Panics
    /// If a microprocess waits for itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread;
    ///
    /// # std::panic::set_hook(Box::new(|_| ()));
    /// let (good, bad) = (thread::spawn(|| 7), thread::spawn(|| -> u32 { panic!("no luck") }));
    /// assert_eq!(good.join().unwrap(), 7);
    /// let payload = bad.join().unwrap_err();
    /// assert_eq!(payload.downcast_ref::<&str>(), Some(&"no luck"));
    /// ```
    #[inline]
    pub fn join(self) -> Result<T> {
        cancel::point();
        let wait = || match &self.inner {
            Inner::Micro(micro) => micro.wait(None),
            Inner::Kernel(handle) => handle.wait(None),
        };
        while !wait() {
            cancel::point();
        }
        match self.inner {
            Inner::Micro(micro) => micro.take(),
            Inner::Kernel(handle) => handle.join(),
        }
    }

    /// As [`join`](JoinHandle::join), for at most `time`. The result of `join` is in the `Ok`.
    /// Blocks the microprocess, or the kernel thread if it runs none.
    ///
    /// # Errors
    /// The handle, if the time is over before the microprocess has ended.
    ///
    /// # Panics
    /// If a microprocess waits for itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread;
    /// use std::time::Duration;
    ///
    /// let handle = thread::spawn(|| {
    ///     thread::park();
    ///     "unparked"
    /// });
    /// // When the time is over, the handle comes back.
    /// let handle = handle.join_timeout(Duration::from_millis(2)).unwrap_err();
    /// handle.thread().unpark();
    /// let outcome = handle.join_timeout(Duration::from_secs(60)).expect("it ends soon");
    /// assert_eq!(outcome.unwrap(), "unparked");
    /// ```
    pub fn join_timeout(self, time: Duration) -> std::result::Result<Result<T>, JoinHandle<T>> {
        self.join_until(after(time))
    }

    /// As [`join`](JoinHandle::join), until `deadline` at the latest. The result of `join` is in
    /// the `Ok`. Blocks the microprocess, or the kernel thread if it runs none.
    ///
    /// # Errors
    /// The handle, if the deadline passes before the microprocess has ended.
    ///
    /// # Panics
    /// If a microprocess waits for itself.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let deadline = Instant::now() + Duration::from_millis(2);
    /// let handle = thread::spawn(thread::park).join_until(deadline).unwrap_err();
    /// assert!(Instant::now() >= deadline);
    /// handle.cancel();
    /// assert!(handle.join().is_err());
    /// ```
    pub fn join_until(self, deadline: Instant) -> std::result::Result<Result<T>, JoinHandle<T>> {
        loop {
            cancel::point();
            let done = match &self.inner {
                Inner::Micro(micro) => micro.wait(Some(deadline)),
                Inner::Kernel(handle) => handle.wait(Some(deadline)),
            };
            if done {
                return Ok(self.join());
            }
            if Instant::now() >= deadline {
                return Err(self);
            }
        }
    }

    /// As [`join_until`](JoinHandle::join_until), with or without a deadline. Ends early also where
    /// the caller has something else to do ([`crate::interrupt::end_waits_when`]).
    ///
    /// # Errors
    /// The handle, if the microprocess has not ended.
    #[doc(hidden)]
    pub fn join_uninterrupted(
        self,
        deadline: Option<Instant>,
    ) -> std::result::Result<Result<T>, JoinHandle<T>> {
        let has_ended = match &self.inner {
            Inner::Micro(micro) => micro.wait(deadline),
            Inner::Kernel(handle) => handle.wait(deadline),
        };
        if !has_ended {
            return Err(self);
        }
        Ok(match self.inner {
            Inner::Micro(micro) => micro.take(),
            Inner::Kernel(handle) => handle.join(),
        })
    }

    /// Whether the closure has returned, so that `join` does not wait.
    pub fn is_finished(&self) -> bool {
        match &self.inner {
            Inner::Micro(micro) => micro.is_finished(),
            Inner::Kernel(handle) => handle.is_finished(),
        }
    }

    /// Returns the microprocess.
    pub fn thread(&self) -> &Thread {
        match &self.inner {
            Inner::Micro(micro) => micro.thread(),
            Inner::Kernel(handle) => handle.thread(),
        }
    }

    /// Requests the cancellation of the microprocess: `thread().cancel()`.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::{self, Cancelled};
    ///
    /// let handle = thread::spawn(thread::park);
    /// handle.cancel();
    /// assert!(handle.join().unwrap_err().is::<Cancelled>());
    /// ```
    pub fn cancel(&self) {
        self.thread().cancel();
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("thread", self.thread()).finish_non_exhaustive()
    }
}
