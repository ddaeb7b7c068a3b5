//! The BPF program as an event source: see [`crate::bpf`].

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use kumihimo_arch::descriptor::close_anonymous;

use super::event_source::EventSource;
use super::kind::Kind;
use crate::handoff::page::Page;
use crate::linux::bpf::tracepoint::{Origin, Report};
use crate::linux::bpf::{Bpf, Followed, Kept, Way};
use crate::linux::debugger::is_debugged;
use crate::linux::epoll::watch_for;
use crate::report::unavailable::Unavailable;

/// In [`BpfSource::links`]: not attached.
const NONE: i32 = -1;
/// The same: followed at the tracepoint, where one that carries nothing costs next to nothing.
const FOLLOWED: i32 = -2;

#[derive(Debug)]
pub(super) struct BpfSource {
    bpf: Bpf,
    /// By slot: the descriptor that keeps the program attached to its kernel thread's event.
    links: Box<[AtomicI32]>,
    /// Those that are followed, by slot.
    followed: Mutex<HashMap<u32, Followed>>,
}

impl BpfSource {
    pub(super) fn open(slots: u32) -> Result<BpfSource, Unavailable> {
        let mut bpf = match Way::asked() {
            Way::Thread => Bpf::open(slots)?,
            Way::Switch => Bpf::load_switch(slots)?,
        };
        if is_debugged() {
            bpf.without_traps();
        }
        let links = (0..=slots).map(|_| AtomicI32::new(NONE)).collect();
        Ok(BpfSource { bpf, links, followed: Mutex::default() })
    }
}

impl BpfSource {
    /// None: not at the tracepoint, or the kernel refuses to tell.
    fn report(&self) -> Option<Report> {
        self.bpf.tracepoint().ok().flatten()
    }

    /// Attaches the program to the calling kernel thread, unless it is attached. Async-signal-safe
    /// except for the first time.
    fn begin(&self, index: u32) -> Result<(), (&'static str, io::Error)> {
        let link = &self.links[index as usize];
        // Relaxed: by its kernel thread only.
        if link.load(Ordering::Relaxed) != NONE {
            return Ok(());
        }
        let of = match self.bpf.attach_here(index)?.into_kept() {
            Kept::Event(fd) => fd.into_raw_fd(),
            Kept::Followed(thread) => {
                self.followed.lock().unwrap_or_else(PoisonError::into_inner).insert(index, thread);
                FOLLOWED
            }
        };
        link.store(of, Ordering::Relaxed);
        Ok(())
    }

    /// Closes its event, if it has one. By the kernel thread of slot `index`. Async-signal-safe.
    fn unlink(&self, index: u32) {
        let link = &self.links[index as usize];
        let fd = link.load(Ordering::Relaxed);
        if fd >= 0 {
            link.store(NONE, Ordering::Relaxed);
            // SAFETY: ours, and taken out by its kernel thread, the caller.
            unsafe { close_anonymous(fd) };
        }
    }
}

impl Drop for BpfSource {
    fn drop(&mut self) {
        // Of kernel threads that never came back to detach themselves.
        (0..self.links.len() as u32).for_each(|index| self.unlink(index));
    }
}

impl EventSource for BpfSource {
    fn kind(&self) -> Kind {
        Kind::Bpf
    }

    fn note(&self) -> Option<String> {
        self.report().map(|report| report.to_string())
    }

    fn shortfall(&self) -> Option<String> {
        let Report { origin, traps, .. } = self.report()?;
        let alone = match origin {
            Origin::Alone(why) => Some(format!(
                "its BPF program, which runs at every switch of the machine, is not shared: {why}"
            )),
            Origin::Found | Origin::Loaded => None,
        };
        let traps = (!traps).then(|| {
            "this kernel has no task work for BPF programs (Linux 6.18): the return from a block is \
             noticed when the microprocess next enters the runtime"
                .to_owned()
        });
        let all: Vec<String> = alone.into_iter().chain(traps).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn memory(&self) -> Option<(NonNull<u8>, usize)> {
        let (base, bytes) = self.bpf.memory();
        NonNull::new(base).map(|base| (base, bytes))
    }

    fn register(&self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        watch_for(epoll, self.bpf.event_fd(), 0)
    }

    fn attach(&self, index: u32) -> io::Result<()> {
        self.begin(index).map_err(|(step, error)| Bpf::not_attached(index, step, &error))
    }

    fn detach(&self, index: u32) {
        self.unlink(index);
        self.links[index as usize].store(NONE, Ordering::Relaxed);
        let followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner).remove(&index);
        // Closed without the lock: the kernel waits there for other cores.
        drop(followed);
    }

    fn begin(&self, index: u32, _time: u64, _epoll: BorrowedFd<'_>) -> io::Result<()> {
        self.begin(index).map_err(|(_, error)| error)
    }

    fn leave(&self, index: u32) {
        self.unlink(index);
    }

    fn drain(&self, _data: u32, _page: &Page, blocked: &mut dyn FnMut(u32)) {
        self.bpf.drain(|slot, _vp| blocked(slot));
    }

    fn lends(&self, _index: u32) -> bool {
        true
    }

    fn reports_returns(&self, _index: u32) -> bool {
        self.bpf.traps()
    }
}
