//! Descriptors that the child of a fork must close.
//!
//! An address space keeps its number by a file lock, which lasts as long as any copy of the
//! descriptor. The child of a fork has copies and must close them, so that the number does not
//! outlive the parent.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

/// Capacity of the first part; each further part has twice the capacity of the previous one.
const FIRST: usize = 64;
/// Number of parts, enough for four million descriptors.
const PARTS: usize = 16;
const NONE: RawFd = -1;

/// The numbers of the descriptors. They are atomics, because the child of a multi-threaded process
/// must not take a lock.
#[derive(Debug, Default)]
pub struct Descriptors {
    parts: [OnceLock<Box<[AtomicI32]>>; PARTS],
    forgotten: AtomicBool,
}

impl Descriptors {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Arc<Descriptors> {
        Arc::default()
    }

    /// Returns whether this process is the child of a fork that has closed the descriptors. Their
    /// numbers may then belong to other files.
    #[must_use]
    pub fn are_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Stores a number, and returns its place.
    fn claim(&self, fd: RawFd) -> Option<(usize, usize)> {
        self.parts.iter().enumerate().find_map(|(part, numbers)| {
            let room = || (0..FIRST << part).map(|_| AtomicI32::new(NONE)).collect();
            let free = |number: &AtomicI32| {
                number.load(Ordering::Relaxed) == NONE
                    && number
                        .compare_exchange(NONE, fd, Ordering::Relaxed, Ordering::Relaxed)
                        .is_ok()
            };
            Some((part, numbers.get_or_init(room).iter().position(free)?))
        })
    }

    /// Closes the child's copies after a fork, without effect on the parent. Takes no lock and does
    /// not allocate: async-signal-safe.
    pub fn forget_in_child(&self) {
        if self.forgotten.swap(true, Ordering::Relaxed) {
            return;
        }
        // A part that another kernel thread was creating during the fork is absent.
        for number in self.parts.iter().filter_map(OnceLock::get).flatten() {
            let number = number.load(Ordering::Relaxed);
            if number != NONE {
                // Their owners are threads of the parent, or call `are_forgotten` before they use a
                // descriptor.
                let _ = nix::unistd::close(number);
            }
        }
    }
}

/// A descriptor in the set, which is closed when this value is dropped. In a child that has closed
/// its copies, the number may belong to another file, and dropping has no effect.
#[derive(Debug)]
pub struct Kept {
    /// `None` only in `drop`.
    fd: Option<OwnedFd>,
    place: Option<(usize, usize)>,
    by: Arc<Descriptors>,
}

impl Kept {
    /// Adds `fd` to `by`.
    #[must_use]
    pub fn new(fd: OwnedFd, by: &Arc<Descriptors>) -> Kept {
        let place = by.claim(fd.as_raw_fd());
        debug_assert!(place.is_some(), "too many descriptors");
        Kept { fd: Some(fd), place, by: by.clone() }
    }

    /// Returns whether this process is the child of a fork that has closed its copy.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.by.are_forgotten()
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
            // The descriptor is closed already, and its number may belong to another file.
            std::mem::forget(fd);
            return;
        }
        // Cleared before the descriptor is closed: afterwards its number may belong to another
        // file, which a child must not close.
        if let Some((part, at)) = self.place
            && let Some(numbers) = self.by.parts[part].get()
        {
            numbers[at].store(NONE, Ordering::Relaxed);
        }
    }
}
