//! The descriptors that an address space holds for its place among the others, and that a fork's child has copies of: a lock lasts as long as
//! any copy, so the child has to close its own.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Lock, directory, listener, stop, and the connections with one that is on its way out.
const MOST: usize = 72;
const NONE: RawFd = -1;

/// Their numbers. In atomics, since the child of a process with several kernel threads may take no lock.
#[derive(Debug)]
pub(crate) struct Descriptors {
    numbers: [AtomicI32; MOST],
    forgotten: AtomicBool,
}

impl Descriptors {
    pub(crate) fn new() -> Arc<Descriptors> {
        Arc::new(Descriptors { numbers: [const { AtomicI32::new(NONE) }; MOST], forgotten: AtomicBool::new(false) })
    }

    /// In a fork's child: closes its copies, which changes nothing for the parent. Takes no lock, allocates nothing.
    pub(crate) fn forget_in_child(&self) {
        if self.forgotten.swap(true, Ordering::Relaxed) {
            return;
        }
        for number in &self.numbers {
            let number = number.load(Ordering::Relaxed);
            if number != NONE {
                // Their owners are the parent's kernel threads' or see that they are forgotten.
                let _ = nix::unistd::close(number);
            }
        }
    }
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Kept {
    /// `None` only in `drop`.
    fd: Option<OwnedFd>,
    by: Arc<Descriptors>,
}

impl Kept {
    pub(crate) fn new(fd: OwnedFd, by: &Arc<Descriptors>) -> Kept {
        let claim = |number: &&AtomicI32| {
            number.compare_exchange(NONE, fd.as_raw_fd(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let place = by.numbers.iter().find(claim);
        debug_assert!(place.is_some(), "there are at most {MOST}");
        Kept { fd: Some(fd), by: by.clone() }
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Some(fd) => fd.as_fd(),
            None => unreachable!(),
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        if self.by.forgotten.load(Ordering::Relaxed) {
            // Closed, and its number may be another's.
            std::mem::forget(fd);
            return;
        }
        // Before it is closed: after that its number may be another's, which a child must not close.
        let number = self.by.numbers.iter().find(|number| number.load(Ordering::Relaxed) == fd.as_raw_fd());
        if let Some(number) = number {
            number.store(NONE, Ordering::Relaxed);
        }
    }
}
