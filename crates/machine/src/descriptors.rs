//! The descriptors that an address space holds for its place among the others, and that a fork's
//! child has copies of: a lock lasts as long as any copy, so the child has to close its own.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

/// How many the first part has room for; each further one has room for twice as many as the one
/// before.
const FIRST: usize = 64;
/// For four million descriptors.
const PARTS: usize = 16;
const NONE: RawFd = -1;

/// Their numbers. In atomics, since the child of a process with several kernel threads may take no
/// lock.
#[derive(Debug, Default)]
pub struct Descriptors {
    parts: [OnceLock<Box<[AtomicI32]>>; PARTS],
    forgotten: AtomicBool,
}

impl Descriptors {
    /// None yet.
    #[must_use]
    pub fn new() -> Arc<Descriptors> {
        Arc::default()
    }

    /// Whether this is a fork's child that has closed them: then their numbers are others'.
    #[must_use]
    pub fn are_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Notes one down: where.
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

    /// In a fork's child: closes its copies, which changes nothing for the parent. Takes no lock,
    /// allocates nothing: async-signal-safe.
    pub fn forget_in_child(&self) {
        if self.forgotten.swap(true, Ordering::Relaxed) {
            return;
        }
        // A part that another kernel thread was just making is not there.
        for number in self.parts.iter().filter_map(OnceLock::get).flatten() {
            let number = number.load(Ordering::Relaxed);
            if number != NONE {
                // Their owners are the parent's kernel threads' or see that they are forgotten.
                let _ = nix::unistd::close(number);
            }
        }
    }
}

/// One of them. Closed when it is dropped; in a fork's child that has forgotten them its number is
/// another's, and dropping it does nothing.
#[derive(Debug)]
pub struct Kept {
    /// `None` only in `drop`.
    fd: Option<OwnedFd>,
    place: Option<(usize, usize)>,
    by: Arc<Descriptors>,
}

impl Kept {
    /// `fd`, noted down among `by`.
    #[must_use]
    pub fn new(fd: OwnedFd, by: &Arc<Descriptors>) -> Kept {
        let place = by.claim(fd.as_raw_fd());
        debug_assert!(place.is_some(), "there are not so many");
        Kept { fd: Some(fd), place, by: by.clone() }
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
        // Before it is closed: after that its number may be another's, which a child must not
        // close.
        if let Some((part, at)) = self.place
            && let Some(numbers) = self.by.parts[part].get()
        {
            numbers[at].store(NONE, Ordering::Relaxed);
        }
    }
}
