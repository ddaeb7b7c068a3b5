//! The number of an address space, which is part of all its IDs.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use kumihimo_resource::id::Location;
use kumihimo_resource::serials::Claim;

use crate::directory::{Claimed, CoreNotifier, Directory, write_generation};
use crate::error::Error;
use crate::socket::descriptors::Kept;

/// A number that belongs to this process alone, and under which no ID of a dead address space is
/// valid.
///
/// The number becomes free when this value is dropped, or when the process ends in any way. The
/// next holder starts above the generations that were claimed with it. In the child of a fork, the
/// number is not valid; see [`forget_in_child`](Number::forget_in_child).
#[derive(Debug)]
pub struct Number {
    pub(crate) directory: Directory,
    pub(crate) number: u16,
    first: u32,
    lock: Arc<Kept>,
    pub(crate) pid: u32,
    /// Set once this address space can notify others.
    pub(crate) core_notifier: OnceLock<CoreNotifier>,
}

impl Number {
    /// Takes a number in the caller's run-time directory; see [`Directory::mine`]. Takes about ten
    /// microseconds, and up to a second if many processes start at once.
    ///
    /// # Errors
    /// Returns [`Error::Directory`] if no directory is usable, if it is full or read-only, if all
    /// numbers are taken, or if it contains a foreign entry.
    pub fn take() -> Result<Number, Error> {
        Number::take_in(Directory::mine()?)
    }

    /// Takes a number in `directory`, which must be the caller's own.
    ///
    /// # Errors
    /// Returns the errors of [`take`](Number::take).
    pub fn take_in(directory: Directory) -> Result<Number, Error> {
        if !directory.is_mine() {
            let (path, owner) = (directory.path().display(), directory.owner());
            return Err(Error::Directory(format!(
                "run-time directory {path} belongs to user {owner}; only that user's processes can join it"
            )));
        }
        let Claimed { number, first, lock } = directory.claim()?;
        Ok(Number {
            directory,
            number,
            first,
            lock: Arc::new(lock),
            pid: std::process::id(),
            core_notifier: OnceLock::new(),
        })
    }

    /// Returns the location, which is the first part of this address space's IDs.
    ///
    /// # Panics
    /// Never panics: numbers are in range.
    #[must_use]
    pub fn location(&self) -> Location {
        Location::new(self.number).expect("numbers are in range")
    }

    /// Returns the first generation that was never used with this number, for `Generations::new`.
    #[must_use]
    pub fn first_generation(&self) -> u32 {
        self.first
    }

    /// Returns the function that records further generations as used with this number, for
    /// `Generations::new`. It returns `false` if the record cannot be written (disk full), after
    /// the number became free, and in the child of a fork.
    #[must_use]
    pub fn claim(&self) -> Claim {
        let (lock, pid) = (Arc::downgrade(&self.lock), self.pid);
        Box::new(move |limit| {
            std::process::id() == pid
                && lock.upgrade().is_some_and(|lock| write_generation(&*lock, limit).is_ok())
        })
    }

    /// See [`Directory::passed_over`].
    #[must_use]
    pub fn passed_over(&self) -> &[String] {
        self.directory.passed_over()
    }

    /// Returns the path of the run-time directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Closes a fork's child's copies of all descriptors of the number and its
    /// [`Control`](super::control::Control), so that the number does not outlive the parent. Must
    /// run as early as possible in the child. Has no effect on the parent. Both values may be
    /// dropped or leaked afterwards. Async-signal-safe.
    pub fn forget_in_child(&self) {
        if std::process::id() != self.pid {
            self.directory.forget_in_child();
        }
    }
}

impl Number {
    /// Notifies address space `number` of the same directory of a change that concerns it. Its
    /// [`ControlHandler::on_notification`](crate::handler::ControlHandler::on_notification) is
    /// called, possibly once for several notifications. Takes some microseconds; never blocks,
    /// allocates nothing. Has no effect if there is no such address space, or before
    /// [`Control::start`](crate::space::Control::start).
    pub fn notify(&self, number: u16) {
        if let Some(core_notifier) = self.core_notifier.get() {
            core_notifier.notify(number);
        }
    }
}
