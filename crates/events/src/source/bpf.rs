//! The BPF program as an event source: see [`crate::bpf`].

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use super::{EventSource, Kind};
use crate::bpf::{Attached, Bpf, Way};
use crate::kernel::watch_for;
use crate::page::Page;
use crate::preempt::is_debugged;
use crate::refused::Refused;

#[derive(Debug)]
pub(super) struct BpfSource {
    bpf: Bpf,
    /// What keeps the program attached, by slot.
    attached: Mutex<HashMap<u32, Attached>>,
}

impl BpfSource {
    pub(super) fn open(slots: u32) -> Result<BpfSource, Refused> {
        let way = Way::asked().map_err(|why| Refused::new(why, "KUMI_BPF=thread, or nothing"))?;
        let mut bpf = match way {
            Way::Thread => Bpf::open(slots)?,
            Way::Switch => Bpf::load_switch(slots)?,
        };
        if is_debugged() {
            bpf.without_traps();
        }
        Ok(BpfSource { bpf, attached: Mutex::default() })
    }
}

impl EventSource for BpfSource {
    fn kind(&self) -> Kind {
        Kind::Bpf
    }

    fn memory(&self) -> Option<(NonNull<u8>, usize)> {
        let (base, bytes) = self.bpf.memory();
        NonNull::new(base).map(|base| (base, bytes))
    }

    fn register(&self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        watch_for(epoll, self.bpf.event_fd(), 0)
    }

    fn attach(&self, index: u32) -> io::Result<()> {
        let attached = self.bpf.attach(index)?;
        self.attached.lock().unwrap_or_else(PoisonError::into_inner).insert(index, attached);
        Ok(())
    }

    fn detach(&self, index: u32) {
        let attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner).remove(&index);
        // Closed without the lock: the kernel waits there for other cores.
        drop(attached);
    }

    fn told(&self, _data: u32, _page: &Page, blocked: &mut dyn FnMut(u32)) {
        self.bpf.drain(|slot, _vp| blocked(slot));
    }

    fn lends(&self) -> bool {
        true
    }

    fn tells_return(&self) -> bool {
        self.bpf.traps()
    }
}
