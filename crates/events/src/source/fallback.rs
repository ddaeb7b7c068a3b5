//! Fallback: a second event source for kernel threads to which the kernel refuses the first.
//!
//! A process that drops its privileges (setuid(2), capabilities) keeps its open events, so the
//! first source still serves the threads that attached before. Threads that attach later use the
//! best source that needs no privileges.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kumihimo_arch::descriptor::Descriptor;

use super::event_source::EventSource;
use super::kind::Kind;
use crate::handoff::page::Page;
use crate::report::unavailable::Unavailable;

type Opener = fn(Kind, u32) -> Result<Box<dyn EventSource>, Unavailable>;

#[derive(Debug)]
pub(super) struct Fallback {
    /// Registers with epoll data 0.
    first: Box<dyn EventSource>,
    slots: u32,
    /// Opens another source (`super::open_one`).
    open: Opener,
    epoll: OnceLock<Descriptor>,
    /// Opened at the first refusal of `first`. Contains `None` if no other source is available
    /// either.
    other: OnceLock<Option<Box<dyn EventSource>>>,
    /// By slot: whether `other` serves the thread. Written only by that thread.
    by_other: Box<[AtomicBool]>,
}

impl Fallback {
    pub(super) fn new(first: Box<dyn EventSource>, slots: u32, open: Opener) -> Fallback {
        let by_other = (0..=slots).map(|_| AtomicBool::new(false)).collect();
        Fallback { first, slots, open, epoll: OnceLock::new(), other: OnceLock::new(), by_other }
    }

    fn other(&self) -> Option<&dyn EventSource> {
        self.other.get()?.as_deref()
    }

    /// Returns the source that serves the thread of slot `index`.
    fn of(&self, index: u32) -> &dyn EventSource {
        let by_other = self.by_other[index as usize].load(Ordering::Relaxed);
        self.other().filter(|_| by_other).unwrap_or(&*self.first)
    }

    /// Returns the source to use after `first` was refused. Reports once if there is none.
    #[cold]
    fn fall_back(&self, refused: &io::Error) -> Option<&dyn EventSource> {
        let open = || {
            let (first, epoll) = (self.first.kind(), self.epoll.get());
            let worse = Kind::ALL
                .into_iter()
                .skip_while(|kind| *kind != first)
                .skip(1)
                .filter(|kind| *kind != Kind::Off);
            let opened = worse.map(|kind| (self.open)(kind, self.slots)).find_map(Result::ok);
            let opened = opened
                .filter(|other| epoll.is_some_and(|epoll| other.register(epoll.as_fd()).is_ok()));
            // With another source all goes on, and the metrics name it.
            if opened.is_none() {
                eprintln!(
                    "kumihimo: event source {first} is refused to new kernel threads ({refused}), probably because the \
                     process has dropped its privileges: a blocked microprocess on a new thread holds its virtual processor \
                     until it returns; to keep {first}, keep CAP_BPF and CAP_PERFMON"
                );
            }
            opened
        };
        self.other.get_or_init(open).as_deref()
    }
}

impl EventSource for Fallback {
    fn kind(&self) -> Kind {
        self.first.kind()
    }

    fn fallback(&self) -> Option<Kind> {
        self.other().map(EventSource::kind)
    }

    fn note(&self) -> Option<String> {
        self.first.note()
    }

    fn shortfall(&self) -> Option<String> {
        self.first.shortfall()
    }

    fn memory(&self) -> Option<(NonNull<u8>, usize)> {
        self.first.memory()
    }

    fn register(&self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        let own = epoll.try_clone_to_owned()?;
        self.epoll.set(own.into()).map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))?;
        self.first.register(epoll)
    }

    fn attach(&self, index: u32) -> io::Result<()> {
        let by_other = &self.by_other[index as usize];
        by_other.store(false, Ordering::Relaxed);
        let refused = match self.first.attach(index) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => e,
            done => return done,
        };
        let Some(other) = self.fall_back(&refused) else { return Err(refused) };
        other.attach(index)?;
        by_other.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn detach(&self, index: u32) {
        self.first.detach(index);
        if let Some(other) = self.other() {
            other.detach(index);
        }
    }

    fn begin(&self, index: u32, time: u64, epoll: BorrowedFd<'_>) -> io::Result<()> {
        self.of(index).begin(index, time, epoll)
    }

    fn end(&self, index: u32, time: u64) {
        self.first.end(index, time);
        if let Some(other) = self.other() {
            other.end(index, time);
        }
    }

    fn leave(&self, index: u32) {
        self.of(index).leave(index);
    }

    fn rest(&self, index: u32, rests: bool) {
        self.of(index).rest(index, rests);
    }

    fn drain(&self, data: u32, page: &Page, blocked: &mut dyn FnMut(u32)) {
        match self.other().filter(|_| data != 0) {
            Some(other) => other.drain(data, page, blocked),
            None => self.first.drain(data, page, blocked),
        }
    }

    fn poll(&self, page: &Page, blocked: &mut dyn FnMut(u32)) -> Option<Duration> {
        let first = self.first.poll(page, blocked);
        let other = self.other().and_then(|other| other.poll(page, blocked));
        first.into_iter().chain(other).min()
    }

    fn needs_poll(&self) -> bool {
        self.first.needs_poll() || self.other().is_some_and(EventSource::needs_poll)
    }

    fn reports_blocks(&self) -> bool {
        self.first.reports_blocks()
    }

    fn lends(&self, index: u32) -> bool {
        self.of(index).lends(index)
    }

    fn reports_returns(&self, index: u32) -> bool {
        self.of(index).reports_returns(index)
    }
}

#[cfg(test)]
mod tests;
