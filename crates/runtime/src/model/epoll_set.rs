//! The kernel's half of readiness: an edge-triggered epoll set with one descriptor.
//!
//! As in fs/eventpoll.c: a change of the file puts the descriptor into the ready list, once; a
//! fetch takes it out and asks the file what it is ready for *now*. A descriptor that is ready for
//! nothing by then causes no event.

use std::io;
use std::os::fd::RawFd;
use std::time::Instant;

use ::loom::sync::{Condvar, Mutex};

use crate::idle::descriptor_entry::DescriptorEntry;
use crate::idle::interest::Interest;
use crate::wait::readiness::Source;

#[derive(Default)]
struct ReadyList {
    is_registered: bool,
    is_ready: bool,
    is_closed: bool,
}

struct EpollSet {
    entry: DescriptorEntry,
    list: Mutex<ReadyList>,
    changed: Condvar,
}

::loom::lazy_static! {
    /// That of the running execution.
    static ref SET: EpollSet = EpollSet {
        entry: DescriptorEntry::new(),
        list: Mutex::new(ReadyList::default()),
        changed: Condvar::new(),
    };
}

impl Source {
    pub(crate) fn register(&self) -> io::Result<Option<&'static DescriptorEntry>> {
        if self.entry.get().is_none() {
            // EPOLL_CTL_ADD reports what is ready already. Published after it, as the real one.
            SET.change(|list| (list.is_registered, list.is_ready) = (true, true));
            let _ = self.entry.set(&SET.entry);
        }
        Ok(self.entry.get().copied())
    }

    pub(crate) fn register_for_future(&self) -> io::Result<&'static DescriptorEntry> {
        Ok(self.register()?.expect("the models have no foreign threads"))
    }
}

pub(crate) fn poll(_: RawFd, _: Interest, _: Option<Instant>) -> io::Result<()> {
    unreachable!("the models have no foreign threads")
}

impl EpollSet {
    fn change(&self, f: impl FnOnce(&mut ReadyList)) {
        f(&mut self.list.lock().unwrap());
        self.changed.notify_one();
    }
}

/// Opens the set. To be called before any thread uses a source.
pub fn open() {
    SET.change(|list| list.is_closed = false);
}

/// The file has become ready for something.
pub fn file_changed() {
    SET.change(|list| list.is_ready |= list.is_registered);
}

/// No further change comes: [`collect`] returns false once all events are reported.
pub fn close() {
    SET.change(|list| list.is_closed = true);
}

/// The VP's part: waits for an event and reports it. `flags` asks the file what it is ready for.
pub fn collect(flags: impl FnOnce() -> i32) -> bool {
    let mut list = SET.list.lock().unwrap();
    while !list.is_ready {
        if list.is_closed {
            return false;
        }
        list = SET.changed.wait(list).unwrap();
    }
    list.is_ready = false;
    let flags = flags();
    drop(list);
    if flags != 0
        && let Some(reader) = SET.entry.report(flags)
    {
        reader.wake();
    }
    true
}
