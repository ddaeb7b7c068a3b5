//! Periodic looks at each carrying kernel thread as an event source: see [`crate::watch`].

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::event_source::EventSource;
use super::kind::Kind;
use crate::handoff::barrier;
use crate::handoff::page::Page;
use crate::linux::watch::{self, ProcProbe, Tid, Watch, WatchedThread};
use crate::report::unavailable::Unavailable;

#[derive(Debug, Default)]
pub(super) struct WatchSource {
    carriers: Mutex<Vec<(u32, u64)>>,
    watch: Mutex<Watch>,
}

impl WatchSource {
    pub(super) fn open() -> Result<WatchSource, Unavailable> {
        // A claim needs the barrier: the carrier may be on its way back on another core.
        barrier::probe()?;
        watch::readable().map_err(|e| {
            Unavailable::new(
                format!("/proc/self/task/TID/stat: {e}"),
                "mount procfs on /proc (mount -t proc proc /proc)",
            )
        })?;
        Ok(WatchSource::default())
    }
}

impl EventSource for WatchSource {
    fn kind(&self) -> Kind {
        Kind::Watch
    }

    fn needs_poll(&self) -> bool {
        true
    }

    fn begin(&self, index: u32, time: u64, _epoll: BorrowedFd<'_>) -> io::Result<()> {
        self.carriers.lock().unwrap_or_else(PoisonError::into_inner).push((index, time));
        Ok(())
    }

    fn end(&self, index: u32, time: u64) {
        self.carriers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|one| *one != (index, time));
    }

    fn poll(&self, page: &Page, blocked: &mut dyn FnMut(u32)) -> Option<Duration> {
        let carriers = self.carriers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let slots: Vec<_> = carriers
            .iter()
            .map(|(index, _)| {
                let slot = page.slot(*index);
                WatchedThread { open: slot.is_open(), tid: slot.tid.load(Ordering::Relaxed) as Tid }
            })
            .collect();
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        Some(watch.look(&slots, &mut ProcProbe, |i| blocked(carriers[i].0)))
    }
}
