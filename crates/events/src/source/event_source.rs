//! The trait of an event source.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::time::Duration;

use super::kind::Kind;
use crate::handoff::page::Page;

/// An event source: reports the kernel threads that went to sleep in the kernel with a virtual
/// processor and, if it can, their return.
///
/// Kernel threads in the pool sleep in epoll_wait(2) on the descriptors that the source has
/// registered. The thread that wakes calls [`drain`](EventSource::drain) and takes the virtual
/// processor itself, with no other thread in between.
pub trait EventSource: fmt::Debug + Send + Sync {
    /// Returns the kind of the source.
    fn kind(&self) -> Kind;

    /// Returns the second source, which serves the kernel threads to which the kernel refuses this
    /// one. `None` until the first refusal, and if no second source is available.
    fn fallback(&self) -> Option<Kind> {
        None
    }

    /// Returns a line about the source for `kumi doctor`, printed beside its kind.
    fn note(&self) -> Option<String> {
        None
    }

    /// Returns the reason if the source reports less, or costs more, than this kind of source does
    /// at best. The reason is printed once.
    fn shortfall(&self) -> Option<String> {
        None
    }

    /// Returns the memory for the slots, if it must belong to the source.
    fn memory(&self) -> Option<(NonNull<u8>, usize)> {
        None
    }

    /// Registers the descriptors that wake the waiters (epoll_ctl(2)). The source chooses the epoll
    /// data, below 2^32.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    fn register(&self, _epoll: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Attaches the calling kernel thread, with slot `index`, when it starts.
    ///
    /// # Errors
    /// The kernel's: no descriptors, no memory. The source then cannot report sleeps of the kernel
    /// thread.
    fn attach(&self, _index: u32) -> io::Result<()> {
        Ok(())
    }

    /// Detaches the calling kernel thread, which is about to end.
    fn detach(&self, _index: u32) {}

    /// Notes that the calling kernel thread, with slot `index`, is about to carry a virtual
    /// processor, for the `time`th time. A source that [reports
    /// returns](EventSource::reports_returns) is called in signal handlers too, and must be
    /// async-signal-safe (signal-safety(7)).
    ///
    /// # Errors
    /// As [`attach`](EventSource::attach). The source then does not report the sleeps of this
    /// kernel thread.
    fn begin(&self, _index: u32, _time: u64, _epoll: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Notes that the kernel thread of slot `index` no longer carries the virtual processor of that
    /// `time`. Called by that kernel thread, or by the thread that took the virtual processor. In
    /// the latter case, the kernel thread may carry another one by now.
    fn end(&self, _index: u32, _time: u64) {}

    /// Releases the events of the calling kernel thread, which will have no virtual processor for
    /// long, until it [begins](EventSource::begin) again. Async-signal-safe.
    fn leave(&self, _index: u32) {}

    /// Notes whether the carrier sleeps on purpose in the user scheduler from now on: such a sleep
    /// is not reported. Called by the carrier. Cheap.
    fn rest(&self, _index: u32, _rests: bool) {}

    /// Drains the reports after a wake-up with `data`: calls `blocked` with the index of each slot
    /// whose kernel thread may sleep with its virtual processor. The claimer checks that. Any
    /// number of kernel threads may call this at the same time.
    fn drain(&self, _data: u32, _page: &Page, _blocked: &mut dyn FnMut(u32)) {}

    /// Polls the carriers of a source that does not report by itself, and returns the time until
    /// the next poll. Called by one kernel thread at a time.
    fn poll(&self, _page: &Page, _blocked: &mut dyn FnMut(u32)) -> Option<Duration> {
        None
    }

    /// Returns whether [`poll`](EventSource::poll) must be called.
    fn needs_poll(&self) -> bool {
        false
    }

    /// Returns whether the source ever reports a block by itself, so that a spare must always wait.
    fn reports_blocks(&self) -> bool {
        true
    }

    /// Returns whether, for slot `index`, the kernel itself lends the virtual processor while the
    /// kernel thread is off its core ([`crate::slot::LENT`]). A virtual processor that was not lent
    /// must not be taken.
    fn lends(&self, _index: u32) -> bool {
        false
    }

    /// Returns whether, for slot `index` (0: for any thread that starts now), the source also
    /// reports the return, by SIGTRAP ([`crate::trap`]). That requires a handler: without one the
    /// signal would end the process.
    fn reports_returns(&self, _index: u32) -> bool {
        false
    }
}
