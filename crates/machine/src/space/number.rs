//! The number of an address space, which is in all of its ids.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use kumihimo_resource::id::Location;
use kumihimo_resource::serials::Claim;

use crate::descriptors::Kept;
use crate::directory::{Claimed, CoreNotifier, Directory, write_generation};
use crate::error::Error;

/// A number of this machine that is this process's alone while it has it, and no ids' of the dead.
///
/// It is given back when this is dropped, or the process ends, however it does. The next process
/// with the number begins above the generations that were claimed with it. In a fork's child it is
/// nobody's: see [`forget_in_child`](Number::forget_in_child).
#[derive(Debug)]
pub struct Number {
    pub(crate) directory: Directory,
    pub(crate) number: u16,
    first: u32,
    lock: Arc<Kept>,
    pub(crate) pid: u32,
    /// As long as it can tell others.
    pub(crate) core_notifier: OnceLock<CoreNotifier>,
}

impl Number {
    /// One in the caller's run-time directory, see [`Directory::mine`]. Takes some ten
    /// microseconds; where very many begin at once, up to a second.
    ///
    /// # Errors
    /// [`Error::Directory`]: there is none that can be used; it is full, or read-only; all numbers
    /// are taken; something was planted there.
    pub fn take() -> Result<Number, Error> {
        Number::take_in(Directory::mine()?)
    }

    /// One in that directory, which must be the caller's own.
    ///
    /// # Errors
    /// As [`take`](Number::take).
    pub fn take_in(directory: Directory) -> Result<Number, Error> {
        if !directory.is_mine() {
            let (path, owner) = (directory.path().display(), directory.owner());
            return Err(Error::Directory(format!(
                "run-time directory {path} is user {owner}'s: only their processes join there"
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

    /// What the ids of this address space begin with.
    ///
    /// # Panics
    /// Never: numbers are in range.
    #[must_use]
    pub fn location(&self) -> Location {
        Location::new(self.number).expect("numbers are in range")
    }

    /// The first generation that was never used with this number: for `Generations::new`.
    #[must_use]
    pub fn first_generation(&self) -> u32 {
        self.first
    }

    /// Notes what is used with this number: for `Generations::new`. It refuses (false) where it
    /// cannot be written (disk full), after the number was given back, and in a fork's child.
    #[must_use]
    pub fn claim(&self) -> Claim {
        let (lock, pid) = (Arc::downgrade(&self.lock), self.pid);
        Box::new(move |limit| {
            std::process::id() == pid
                && lock.upgrade().is_some_and(|lock| write_generation(&*lock, limit).is_ok())
        })
    }

    /// The run-time directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// In a fork's child, as soon as can be: closes its copies of all descriptors that belong to
    /// the number and its [`Control`](super::control::Control), so that the number does not outlive
    /// the parent in it. It changes nothing for the parent. Both may be dropped or leaked
    /// afterwards. Async-signal-safe.
    pub fn forget_in_child(&self) {
        if std::process::id() != self.pid {
            self.directory.forget_in_child();
        }
    }
}

impl Number {
    /// Notifies address space `number` of the same directory that something concerns it: its
    /// [`ControlHandler::on_notification`](crate::handler::ControlHandler::on_notification) is
    /// called, once for several that come together. Some microseconds; never blocks, allocates
    /// nothing. For nothing where there is none, or before
    /// [`Control::start`](crate::space::Control::start).
    pub fn notify(&self, number: u16) {
        if let Some(core_notifier) = self.core_notifier.get() {
            core_notifier.notify(number);
        }
    }
}
