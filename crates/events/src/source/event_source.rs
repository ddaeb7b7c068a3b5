//! The trait of an event source.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::time::Duration;

use super::kind::Kind;
use crate::handoff::page::Page;

/// Tells which kernel threads went to sleep in the kernel with a virtual processor, and, if it can,
/// when they are back.
///
/// Kernel threads that wait in the pool sleep in epoll_wait(2) on what the source registered;
/// whichever is woken asks [`drain`](EventSource::drain) and goes on with the virtual processor
/// itself: nobody stands between cause and successor.
pub trait EventSource: fmt::Debug + Send + Sync {
    /// Which one it is.
    fn kind(&self) -> Kind;

    /// The second source, which serves the kernel threads to which the kernel refuses this one.
    /// `None` until the first refusal, and where no second source is available.
    fn fallback(&self) -> Option<Kind> {
        None
    }

    /// A line about it for `kumi doctor`, beside its kind.
    fn note(&self) -> Option<String> {
        None
    }

    /// Why it does less, or costs more, than its kind at best. Reported once.
    fn shortfall(&self) -> Option<String> {
        None
    }

    /// The memory for the slots, if it has to be the source's own.
    fn memory(&self) -> Option<(NonNull<u8>, usize)> {
        None
    }

    /// Registers what wakes the waiters: see epoll_ctl(2). The data is for the source to choose,
    /// below 2^32.
    ///
    /// # Errors
    /// What epoll_ctl says.
    fn register(&self, _epoll: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// The calling kernel thread begins, with slot `index`.
    ///
    /// # Errors
    /// What the kernel says: no descriptors, no memory. The kernel thread then cannot carry.
    fn attach(&self, _index: u32) -> io::Result<()> {
        Ok(())
    }

    /// The calling kernel thread ends.
    fn detach(&self, _index: u32) {}

    /// The calling kernel thread, with slot `index`, is about to carry a virtual processor, for the
    /// `time`th time.
    ///
    /// # Errors
    /// As [`attach`](EventSource::attach): then nobody is told of this kernel thread's sleeps. A
    /// source that [reports returns](EventSource::reports_returns) is asked in a signal handler
    /// too, and keeps to signal-safety(7).
    fn begin(&self, _index: u32, _time: u64, _epoll: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// The kernel thread of slot `index` no longer carries the one of that `time`. Called by
    /// itself, or by the thread that took it; then it may have another one by now.
    fn end(&self, _index: u32, _time: u64) {}

    /// The calling kernel thread, which carries nothing, will be without a virtual processor for
    /// long: it is to own no event until it [begins](EventSource::begin) again. Async-signal-safe.
    fn leave(&self, _index: u32) {}

    /// Whether it sleeps from its own free will from here, in the user scheduler: no news is
    /// wanted. By the carrier; cheap.
    fn rest(&self, _index: u32, _rests: bool) {}

    /// Drains the reports after a wake-up with `data`: calls `blocked` with the index of each slot
    /// whose kernel thread may sleep with its virtual processor. The claimer checks them. Any
    /// number of kernel threads may call it at a time.
    fn drain(&self, _data: u32, _page: &Page, _blocked: &mut dyn FnMut(u32)) {}

    /// Polls the carriers of a source that does not report by itself, and returns the time until
    /// the next poll. Called by one kernel thread at a time.
    fn poll(&self, _page: &Page, _blocked: &mut dyn FnMut(u32)) -> Option<Duration> {
        None
    }

    /// Whether [`poll`](EventSource::poll) must be called.
    fn needs_poll(&self) -> bool {
        false
    }

    /// Whether the source ever reports a block by itself, so that a spare must always wait.
    fn reports_blocks(&self) -> bool {
        true
    }

    /// Whether, for slot `index`, the kernel itself gives the virtual processor up while its kernel
    /// thread is off its core ([`crate::slot::LENT`]): what was not is not to be taken.
    fn lends(&self, _index: u32) -> bool {
        false
    }

    /// Whether, for slot `index` (0: for any that begins now), it also tells of the return, by
    /// SIGTRAP ([`crate::trap`]). There has to be a handler then, or it would end the process.
    fn reports_returns(&self, _index: u32) -> bool {
        false
    }
}
