//! perf's records of context switches as an event source: see [`crate::perf`].
//!
//! A kernel thread has its event only while it carries a virtual processor, since descriptors and
//! locked memory limit the number of events.
//!
//! An event that rang for a mere preemption is not armed again at once. On one core, the needlessly
//! woken spare has itself taken the core from the carrier. The carrier's return would ring again,
//! and so on. The event is armed after a delay, which grows while no ring is for a sleep.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use kumihimo_arch::descriptor::Descriptor;
use kumihimo_arch::kernel::epoll_ctl;

use super::event_source::EventSource;
use super::kind::Kind;
use crate::handoff::barrier;
use crate::handoff::page::Page;
use crate::linux::epoll::watch_for;
use crate::linux::perf::{Perf, Watched};
use crate::report::unavailable::Unavailable;

/// The delay between a spurious ring and the arming after it, while rings for sleeps are frequent.
const SHORTEST: Duration = Duration::from_micros(200);
/// The longest delay, while rings for sleeps are rare.
const LONGEST: Duration = Duration::from_micros(3200);
/// The number of spurious rings in a row after which rings for sleeps count as rare.
const CALM: u32 = 8;

/// Events that rang for a mere preemption.
#[derive(Debug, Default)]
struct SpuriousBells {
    slots: Vec<u32>,
    /// The time when they are armed again.
    due: Option<Instant>,
    /// The number of spurious rings since the last ring for a sleep.
    calm: u32,
}

impl SpuriousBells {
    fn delay(&self) -> Duration {
        LONGEST.min(SHORTEST * (1 << self.calm.saturating_sub(CALM).min(8)))
    }
}

#[derive(Debug)]
pub(super) struct PerfSource {
    perf: Perf,
    /// By slot.
    watched: Mutex<HashMap<u32, (u64, Arc<Watched>)>>,
    epoll: OnceLock<Descriptor>,
    spurious: Mutex<SpuriousBells>,
}

impl PerfSource {
    pub(super) fn open() -> Result<PerfSource, Unavailable> {
        // A claim needs the barrier: the carrier may be on its way back on another core.
        barrier::probe()?;
        Ok(PerfSource {
            perf: Perf::probe()?,
            watched: Mutex::default(),
            epoll: OnceLock::new(),
            spurious: Mutex::default(),
        })
    }

    fn spurious(&self) -> MutexGuard<'_, SpuriousBells> {
        self.spurious.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, index: u32) -> Option<Arc<Watched>> {
        self.watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&index)
            .map(|(_, watched)| watched.clone())
    }
}

impl EventSource for PerfSource {
    fn kind(&self) -> Kind {
        Kind::Perf
    }

    fn register(&self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        let own = epoll.try_clone_to_owned()?;
        self.epoll.set(own.into()).map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))
    }

    fn begin(&self, index: u32, time: u64, epoll: BorrowedFd<'_>) -> io::Result<()> {
        let watched = Arc::new(self.perf.watch_this_thread()?);
        watch_for(epoll, watched.fd(), u64::from(index))?;
        // Before `listen`: a ring of an event that is not in the map is ignored, and the event
        // would not be armed again.
        self.watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(index, (time, watched.clone()));
        watched.listen();
        Ok(())
    }

    fn end(&self, index: u32, time: u64) {
        let mut all = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(&index).is_none_or(|(of, _)| *of != time) {
            return;
        }
        let watched = all.remove(&index);
        drop(all);
        if let (Some((_, watched)), Some(epoll)) = (watched, self.epoll.get()) {
            // A failure would leave an event whose rings are ignored.
            let _ =
                epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, watched.fd().as_raw_fd(), 0, 0);
        }
    }

    fn rest(&self, index: u32, rests: bool) {
        match self.of(index) {
            Some(watched) if rests => watched.quiet(),
            Some(watched) => watched.listen(),
            None => {}
        }
    }

    fn drain(&self, index: u32, _page: &Page, blocked: &mut dyn FnMut(u32)) {
        let Some(watched) = self.of(index) else { return };
        let sleeps = watched.sleeps();
        let mut spurious = self.spurious();
        // A sleeping thread's event is armed again as well: the claim may fail, and the next sleep
        // would go unnoticed.
        spurious.slots.push(index);
        spurious.calm = if sleeps { 0 } else { spurious.calm.saturating_add(1) };
        if spurious.due.is_none() {
            spurious.due = Some(Instant::now() + spurious.delay());
        }
        drop(spurious);
        if sleeps {
            blocked(index);
        }
    }

    fn needs_poll(&self) -> bool {
        self.spurious().due.is_some()
    }

    fn poll(&self, _page: &Page, blocked: &mut dyn FnMut(u32)) -> Option<Duration> {
        let mut spurious = self.spurious();
        let left = spurious.due?.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Some(left);
        }
        spurious.due = None;
        let slots = std::mem::take(&mut spurious.slots);
        drop(spurious);
        for index in slots {
            if self.of(index).is_some_and(|watched| watched.is_away()) {
                blocked(index);
            }
        }
        None
    }
}
