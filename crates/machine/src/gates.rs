//! Gates by name: the server of the gate of a name, found in the run-time directory without a
//! daemon.
//!
//! `gate.NAME` is a symbolic link whose text is the number of an address space; it is never
//! followed. Only the holder of the lock of a number makes and removes names that say it, so a name
//! whose holder is dead is taken over by the process that locks that number: two that do so at once
//! cannot both. A name is there only while the socket `N.gates` is: a process that finds the socket
//! of a dead one, or takes its number, removes its names with it, and without a socket there is
//! nothing to look for.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags};
use rustix::net::SocketType;

use crate::client::Machine;
use crate::descriptors::Kept;
pub use crate::directory::gate_names::{LONGEST_NAME, check_name};
use crate::directory::gate_names::{gates_name, link_name};
use crate::directory::retry_within;
use crate::directory::socket::{self, PeerSocket};
use crate::error::Error;
use crate::space::Number;

/// Connecting clients wait here to be let in.
const BACKLOG: i32 = 1024;
/// Nobody holds a dead one's lock for longer than it takes to remove its names, unless it is
/// stopped just there. A hundred thousand names on a disk take 3 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// The gates of this address space, as others find them: the socket at which callers are let in,
/// and the names. Until it is dropped.
///
/// In a fork's child it is the parent's: [`Number::forget_in_child`] closes the socket's copy, and
/// dropping it does nothing.
#[derive(Debug)]
pub struct Gates {
    number: Arc<Number>,
    listener: Kept,
    bound: AtomicU64,
}

impl Gates {
    /// Opens the socket `N.gates` (SOCK_SEQPACKET, close on exec, does not block, mode 0600) and
    /// listens. A number has one at a time.
    ///
    /// # Errors
    /// [`Error::Directory`]: full; something was planted under this name. [`Error::Io`].
    pub fn open(number: Arc<Number>) -> Result<Gates, Error> {
        let name = gates_name(number.number);
        let listener = socket::listen(&number.directory, &name, SocketType::SEQPACKET, BACKLOG)?;
        let listener = number.directory.keep(listener);
        Ok(Gates { number, listener, bound: AtomicU64::new(0) })
    }

    /// Whose they are.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number.number
    }

    /// The user whose run-time directory it is.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.number.directory.owner()
    }

    /// Takes name `name`: some microseconds and one inode. A name that a dead address space has
    /// left is taken over; where somebody is just removing what it left, that is waited for, 5 s at
    /// most. Blocks the kernel thread.
    ///
    /// # Errors
    /// [`Error::Invalid`]: see [`check_name`]. [`Error::InUse`]: an address space that lives has
    /// it, this one too. [`Error::Exhausted`]: the directory is full. [`Error::Directory`]:
    /// something was planted under this name.
    pub fn bind(&self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        let mut bound = Ok(Some(()));
        let done = retry_within(PATIENCE, || {
            bound = self.number.directory.try_bind(name, self.number());
            !matches!(bound, Ok(None))
        });
        bound?;
        if !done {
            return Err(Error::InUse(format!(
                "gate {name:?} is that of an address space which has not ended yet: try again later"
            )));
        }
        self.bound.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Gives a name back. False: this address space does not have it.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Directory`], [`Error::Io`].
    pub fn unbind(&self, name: &str) -> Result<bool, Error> {
        check_name(name)?;
        let (directory, link) = (&self.number.directory, link_name(name));
        // Nobody else removes or replaces it while we have the lock.
        if std::process::id() != self.number.pid || directory.holder(&link)? != Some(self.number())
        {
            return Ok(false);
        }
        fs::unlinkat(&directory.fd, &link, AtFlags::empty())
            .map_err(|e| directory.failed(&link, e))?;
        self.bound.fetch_sub(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Whether other users may connect, as far as modes go: admission is decided by the accepting
    /// server. They reach the socket only where they may pass through all directories above the
    /// run-time directory, which is itself opened to them, and stays so: from here on they see
    /// which numbers and gates there are.
    ///
    /// # Errors
    /// What changing the modes of directory and socket says.
    pub fn open_to_others(&self, others: bool) -> Result<(), Error> {
        let directory = &self.number.directory;
        directory.set_socket_mode(&gates_name(self.number()), others)?;
        if others { directory.open_to_others() } else { Ok(()) }
    }
}

impl AsFd for Gates {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Gates {
    fn drop(&mut self) {
        if std::process::id() != self.number.pid {
            return;
        }
        let directory = &self.number.directory;
        let _ = if *self.bound.get_mut() > 0 {
            directory.sweep_gates(self.number.number)
        } else {
            directory.remove_socket(&gates_name(self.number.number))
        };
    }
}

/// A server of gates, reached.
#[derive(Debug)]
pub struct Server {
    /// SOCK_SEQPACKET, connected, close on exec; it blocks.
    pub socket: OwnedFd,
    /// Whose process it is: the owner's of the directory.
    pub uid: u32,
    /// `None` where it is in a pid namespace that this one cannot see into.
    pub pid: Option<u32>,
}

impl Machine {
    /// The server of gate `name`: the number of a living address space. In another user's directory
    /// that cannot be told: then it may be dead, and does not let in.
    ///
    /// # Errors
    /// [`Error::Invalid`]: see [`check_name`]. [`Error::Directory`]: something was planted there.
    pub fn gate(&self, name: &str) -> Result<Option<u16>, Error> {
        check_name(name)?;
        let Some(number) = self.directory.holder(&link_name(name))? else { return Ok(None) };
        let lives = !self.directory.is_mine() || self.directory.is_living(number)?;
        Ok(Some(number).filter(|_| lives))
    }

    /// Every gate that is served, by name, and its server. As [`gate`](Machine::gate).
    ///
    /// # Errors
    /// [`Error::Directory`]: something was planted there.
    pub fn gates(&self) -> Result<Vec<(String, u16)>, Error> {
        let mut living = HashMap::new();
        let mut gates = Vec::new();
        for name in self.directory.gate_names()? {
            let Some(number) = self.directory.holder(&link_name(&name))? else { continue };
            let lives = match living.get(&number) {
                Some(lives) => *lives,
                None => {
                    let lives = !self.directory.is_mine() || self.directory.is_living(number)?;
                    living.insert(number, lives);
                    lives
                }
            };
            if lives {
                gates.push((name, number));
            }
        }
        gates.sort_unstable();
        Ok(gates)
    }

    /// Connects to the server of the gates of address space `number`. Blocks the kernel thread,
    /// until `deadline` at most.
    ///
    /// # Errors
    /// [`Error::Gone`]: it has ended, or closed its gates. [`Error::Timeout`]: it is stopped, or
    /// too many are before us. [`Error::Refused`]: others may not. [`Error::Directory`]: the socket
    /// is not its owner's, or was planted.
    pub fn connect(&self, number: u16, deadline: Instant) -> Result<Server, Error> {
        let name = gates_name(number);
        let PeerSocket { socket, uid, pid } =
            socket::reach(&self.directory, number, &name, SocketType::SEQPACKET, deadline)?;
        Ok(Server { socket, uid, pid: u32::try_from(pid).ok().filter(|pid| *pid > 0) })
    }
}
