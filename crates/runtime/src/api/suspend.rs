//! Suspending and resuming through a handle.

use std::io;

use crate::api::handle::Thread;
use crate::kernel_thread::gs_record::current_mp;
use crate::lifecycle::suspend::{Suspended, resume, suspend, suspend_self};
use crate::microprocess::state::Resume;
use crate::microprocess::waiter::Who;
use crate::upcall::regain::switch_point;

impl Thread {
    /// Stops it: it runs no further until it is [resumed](Thread::resume), wherever it is in its
    /// program, and is then as if nothing had happened. What it holds of the program's own (locks,
    /// memory, messages not yet taken) it keeps meanwhile; of the runtime it holds nothing.
    ///
    /// Waits until it has stopped, for a second at most, and says how far that came; the caller's
    /// microprocess (or kernel thread) is blocked meanwhile. Suspends the caller itself too: then
    /// it returns, with [`Suspended::Now`], when that is resumed. Requests do not count: the first
    /// resume ends them all. Not inside [`NoEvents`](crate::NoEvents). At the end of the runtime
    /// those that are suspended are resumed, so that they can unwind.
    ///
    /// # Errors
    /// `Unsupported`: a kernel thread, 1:1 or foreign.
    ///
    /// Source: P0, section 5.
    pub fn suspend(&self) -> io::Result<Suspended> {
        let Who::Micro(who) = self.who() else { return Err(no_kernel_threads("suspended")) };
        if current_mp().is_some_and(|me| me.reference() == *who) && suspend_self() {
            return Ok(Suspended::Now);
        }
        Ok(suspend(*who))
    }

    /// Lets it run again. False: it was not suspended, or has ended. Never blocks, but is a switch
    /// point.
    ///
    /// # Errors
    /// As [`suspend`](Thread::suspend).
    pub fn resume(&self) -> io::Result<bool> {
        let Who::Micro(who) = self.who() else { return Err(no_kernel_threads("resumed")) };
        let resumed = resume(*who);
        switch_point();
        Ok(matches!(resumed, Resume::Queue | Resume::Cleared))
    }

    /// Whether it was asked to stop, and not yet resumed.
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
