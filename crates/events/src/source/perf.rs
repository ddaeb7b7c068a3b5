//! perf's records of context switches as an event source: see [`crate::perf`].
//!
//! A kernel thread has its event only while it carries a virtual processor, since descriptors and locked memory bound their number.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::{EventSource, Kind};
use crate::barrier;
use crate::kernel::watch_for;
use crate::page::Page;
use crate::perf::{Perf, Watched};
use crate::refused::Refused;

#[derive(Debug)]
pub(super) struct PerfSource {
    perf: Perf,
    /// By slot.
    watched: RwLock<HashMap<u32, Arc<Watched>>>,
    epoll: OnceLock<OwnedFd>,
}

impl PerfSource {
    pub(super) fn open() -> Result<PerfSource, Refused> {
        // The VP is taken from a carrier that may be on its way back on another core.
        barrier::probe()?;
        Ok(PerfSource { perf: Perf::probe()?, watched: RwLock::default(), epoll: OnceLock::new() })
    }

    fn of(&self, index: u32) -> Option<Arc<Watched>> {
        self.watched.read().unwrap_or_else(PoisonError::into_inner).get(&index).cloned()
    }
}

impl EventSource for PerfSource {
    fn kind(&self) -> Kind {
        Kind::Perf
    }

    fn register(&self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        let own = epoll.try_clone_to_owned()?;
        self.epoll.set(own).map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))
    }

    fn begin(&self, index: u32, epoll: BorrowedFd<'_>) -> io::Result<()> {
        let watched = Arc::new(self.perf.watch_this_thread()?);
        watch_for(epoll, watched.fd(), u64::from(index))?;
        watched.listen();
        self.watched.write().unwrap_or_else(PoisonError::into_inner).insert(index, watched);
        Ok(())
    }

    fn end(&self, index: u32) {
        let watched = self.watched.write().unwrap_or_else(PoisonError::into_inner).remove(&index);
        if let (Some(watched), Some(epoll)) = (watched, self.epoll.get()) {
            let none = std::ptr::null_mut();
            // SAFETY: no event is needed to take one out. A failure would leave a bell that nobody answers.
            unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, watched.fd().as_raw_fd(), none) };
        }
    }

    fn rest(&self, index: u32, rests: bool) {
        match self.of(index) {
            Some(watched) if rests => watched.quiet(),
            Some(watched) => watched.listen(),
            None => {}
        }
    }

    fn told(&self, index: u32, _page: &Page, blocked: &mut dyn FnMut(u32)) {
        if self.of(index).is_some_and(|watched| watched.is_away()) {
            blocked(index);
        }
    }
}
