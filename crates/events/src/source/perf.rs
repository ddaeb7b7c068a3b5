//! perf's records of context switches as an event source: see [`crate::perf`].
//!
//! The first [`KEPT`] kernel threads keep their events as long as they live; any other one has its event only while it carries a virtual
//! processor, since descriptors and locked memory bound their number, and making one takes 15 us.
//!
//! A bell that rang for a mere preemption is not made ready at once: on one core the spare that was woken for nothing has itself taken the
//! core from the carrier, whose return would ring again, and so on. The carrier makes it ready, when it next passes through the user
//! scheduler ([`SPENT`]); for one that does not, a look does, a moment later, the longer, the longer no bell was for a sleep.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::{EventSource, Kind};
use crate::barrier;
use crate::kernel::watch_for;
use crate::page::Page;
use crate::perf::{Perf, Watched};
use crate::refused::Refused;
use crate::slot::SPENT;

/// From a bell for nothing until it is made ready again, while bells for sleeps are frequent ...
const SHORTEST: Duration = Duration::from_micros(200);
/// ... and when none was for a sleep lately.
const LONGEST: Duration = Duration::from_micros(3200);
/// So many bells for nothing in a row, and sleeps are no longer frequent.
const CALM: u32 = 8;

/// So many kernel threads keep their events: 8 KiB of locked memory each.
const KEPT: usize = 32;

/// Bells that rang for nothing.
#[derive(Debug, Default)]
struct Silent {
    slots: Vec<u32>,
    /// When they are made ready again.
    due: Option<Instant>,
    /// How many there were since the last for a sleep.
    calm: u32,
}

impl Silent {
    fn delay(&self) -> Duration {
        LONGEST.min(SHORTEST * (1 << self.calm.saturating_sub(CALM).min(8)))
    }
}

/// A kernel thread's event.
#[derive(Debug)]
struct Bell {
    watched: Arc<Watched>,
    /// Which time of carrying it is; none: it does not carry.
    time: Option<u64>,
    kept: bool,
}

#[derive(Debug)]
pub(super) struct PerfSource {
    perf: Perf,
    /// By slot.
    bells: Mutex<HashMap<u32, Bell>>,
    epoll: OnceLock<OwnedFd>,
    silent: Mutex<Silent>,
}

impl PerfSource {
    pub(super) fn open() -> Result<PerfSource, Refused> {
        // The VP is taken from a carrier that may be on its way back on another core.
        barrier::probe()?;
        Ok(PerfSource {
            perf: Perf::probe()?,
            bells: Mutex::default(),
            epoll: OnceLock::new(),
            silent: Mutex::default(),
        })
    }

    fn silent(&self) -> MutexGuard<'_, Silent> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bells(&self) -> MutexGuard<'_, HashMap<u32, Bell>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bell of one that carries.
    fn of(&self, index: u32) -> Option<Arc<Watched>> {
        self.bells().get(&index).filter(|bell| bell.time.is_some()).map(|bell| bell.watched.clone())
    }

    /// Out of the epoll set before it is dropped.
    fn forget(&self, bell: Option<Bell>) {
        if let (Some(bell), Some(epoll)) = (bell, self.epoll.get()) {
            let none = std::ptr::null_mut();
            // SAFETY: no event is needed to take one out. A failure would leave a bell that nobody answers.
            unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, bell.watched.fd().as_raw_fd(), none) };
        }
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

    fn detach(&self, index: u32) {
        let bell = self.bells().remove(&index);
        self.forget(bell);
    }

    fn begin(&self, index: u32, time: u64, epoll: BorrowedFd<'_>) -> io::Result<()> {
        let kept = self.bells().get_mut(&index).map(|bell| {
            bell.time = Some(time);
            bell.watched.clone()
        });
        if let Some(watched) = kept {
            watched.listen();
            return Ok(());
        }
        let watched = Arc::new(self.perf.watch_this_thread()?);
        watch_for(epoll, watched.fd(), u64::from(index))?;
        // First: a bell for one that is not known is not answered, nor made ready again.
        let mut bells = self.bells();
        let kept = bells.values().filter(|bell| bell.kept).count() < KEPT;
        bells.insert(index, Bell { watched: watched.clone(), time: Some(time), kept });
        drop(bells);
        watched.listen();
        Ok(())
    }

    fn end(&self, index: u32, time: u64) {
        let mut bells = self.bells();
        let Some(bell) = bells.get_mut(&index).filter(|bell| bell.time == Some(time)) else { return };
        if bell.kept {
            // With the lock: a later `begin` listens after this.
            bell.time = None;
            bell.watched.hush();
            return;
        }
        let bell = bells.remove(&index);
        drop(bells);
        self.forget(bell);
    }

    fn rest(&self, index: u32, rests: bool) {
        match self.of(index) {
            Some(watched) if rests => watched.quiet(),
            Some(watched) => watched.listen(),
            None => {}
        }
    }

    fn told(&self, index: u32, page: &Page, blocked: &mut dyn FnMut(u32)) {
        let Some(watched) = self.of(index) else { return };
        page.slot(index).pending.fetch_or(SPENT, Ordering::Relaxed);
        let sleeps = watched.sleeps();
        let mut silent = self.silent();
        // Whoever sleeps is asked again as well: the claim may be refused, and nobody would hear of the next sleep.
        silent.slots.push(index);
        silent.calm = if sleeps { 0 } else { silent.calm.saturating_add(1) };
        if silent.due.is_none() {
            silent.due = Some(Instant::now() + silent.delay());
        }
        drop(silent);
        if sleeps {
            blocked(index);
        }
    }

    fn looks(&self) -> bool {
        self.silent().due.is_some()
    }

    fn look(&self, _page: &Page, blocked: &mut dyn FnMut(u32)) -> Option<Duration> {
        let mut silent = self.silent();
        let left = silent.due?.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Some(left);
        }
        silent.due = None;
        let slots = std::mem::take(&mut silent.slots);
        drop(silent);
        for index in slots {
            if self.of(index).is_some_and(|watched| watched.is_away()) {
                blocked(index);
            }
        }
        None
    }
}
