//! `Thread::suspend` and `Thread::resume`.

use std::io;

use crate::api::handle::Thread;
use crate::kernel_thread::gs_record::current_mp;
use crate::lifecycle::suspend::{Suspended, resume, suspend, suspend_self};
use crate::microprocess::protocol::state::Resume;
use crate::microprocess::waiter::Who;
use crate::upcall::regain::switch_point;

impl Thread {
    /// Stops the microprocess until it is [resumed](Thread::resume), wherever it is in its program;
    /// after that it continues normally. It keeps the program's resources that it holds (locks,
    /// memory, messages not yet received), and holds none of the runtime.
    ///
    /// Waits for at most a second until the microprocess has stopped, and returns the outcome.
    /// Blocks the caller's microprocess (or kernel thread) meanwhile. On the caller itself, returns
    /// [`Suspended::Now`] after the caller was resumed. Requests are not counted: the first resume
    /// ends them all. Must not be called inside [`NoEvents`](crate::NoEvents). The end of the
    /// runtime resumes suspended microprocesses, so that they can unwind.
    ///
    /// # Errors
    /// `Unsupported` for a kernel thread, 1:1 or foreign.
    ///
    /// Source: paper P0, section 5.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::{self, Suspended};
    ///
    /// let handle = thread::spawn(thread::park);
    /// assert_eq!(handle.thread().suspend()?, Suspended::Now);
    /// handle.thread().unpark();
    /// assert!(!handle.is_finished(), "it does not run");
    ///
    /// handle.thread().resume()?;
    /// handle.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn suspend(&self) -> io::Result<Suspended> {
        let Who::Micro(who) = self.who() else { return Err(no_kernel_threads("suspended")) };
        if current_mp().is_some_and(|me| me.reference() == *who) && suspend_self() {
            return Ok(Suspended::Now);
        }
        Ok(suspend(*who))
    }

    /// Lets the microprocess run again. Returns false if it was not suspended, or has ended. Never
    /// blocks, but is a switch point.
    ///
    /// # Errors
    /// As [`suspend`](Thread::suspend).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread;
    ///
    /// let handle = thread::spawn(|| 7);
    /// assert!(!handle.thread().resume()?, "it is not suspended");
    ///
    /// let parked = thread::spawn(thread::park);
    /// parked.thread().suspend()?;
    /// assert!(parked.thread().resume()?);
    /// parked.thread().unpark();
    /// parked.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn resume(&self) -> io::Result<bool> {
        let Who::Micro(who) = self.who() else { return Err(no_kernel_threads("resumed")) };
        let resumed = resume(*who);
        switch_point();
        Ok(matches!(resumed, Resume::Queue | Resume::Cleared))
    }

    /// Whether the microprocess was asked to stop and was not resumed since.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread;
    ///
    /// let handle = thread::spawn(thread::park);
    /// handle.thread().suspend()?;
    /// assert!(handle.thread().is_suspended());
    /// handle.thread().resume()?;
    /// assert!(!handle.thread().is_suspended());
    /// # handle.thread().unpark();
    /// # handle.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_suspended(&self) -> bool {
        matches!(self.who(), Who::Micro(who) if who.is_alive() && who.mp.state.is_suspended())
    }
}

fn no_kernel_threads(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("a kernel thread cannot be {what}, only a microprocess"),
    )
}
