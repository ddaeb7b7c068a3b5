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

use rustix::fs::{self, AtFlags, FileType, FlockOperation};
use rustix::io::Errno;
use rustix::net::SocketType;

use crate::client::Machine;
use crate::descriptors::Kept;
use crate::directory::{Directory, parsed, within};
use crate::error::Error;
use crate::socket::{self, Reached};
use crate::space::Number;

/// The longest name of a gate in bytes: with what is before it, shorter than what a directory
/// takes.
pub const LONGEST_NAME: usize = 200;

const PREFIX: &str = "gate.";
/// Connecting clients wait here to be let in.
const BACKLOG: i32 = 1024;
/// Nobody holds a dead one's lock for longer than it takes to remove its names, unless it is
/// stopped just there. A hundred thousand names on a disk take 3 s.
const PATIENCE: Duration = Duration::from_secs(5);
/// Whose queue of callers stays full for so long lives, and is stopped.
const FULL: Duration = Duration::from_secs(1);

/// Whether a gate may be called so: 1 to 200 bytes, neither `/` nor control characters, not
/// beginning with a dot.
///
/// # Errors
/// [`Error::Invalid`], which says why not.
pub fn check_name(name: &str) -> Result<(), Error> {
    let wrong = |why: &str| Err(Error::Invalid(format!("{name:?} cannot be a gate's name: {why}")));
    match name.as_bytes() {
        [] => wrong("it is empty"),
        [b'.', ..] => wrong("it begins with a dot"),
        bytes if bytes.len() > LONGEST_NAME => {
            wrong(&format!("it is longer than {LONGEST_NAME} bytes"))
        }
        bytes if bytes.contains(&b'/') => wrong("it contains a slash"),
        _ if name.chars().any(char::is_control) => {
            wrong("it contains a NUL or another control character")
        }
        _ => Ok(()),
    }
}

fn link_name(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// The socket where callers of the gates of address space `number` are let in.
fn gates_name(number: u16) -> String {
    format!("{number}.gates")
}

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
        let listener = socket::listen(&number, &name, SocketType::SEQPACKET, BACKLOG)?;
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
        let done = within(PATIENCE, || {
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
    pub fn knock(&self, number: u16, deadline: Instant) -> Result<Server, Error> {
        let name = gates_name(number);
        let Reached { socket, uid, pid } =
            socket::reach(&self.directory, number, &name, SocketType::SEQPACKET, deadline)?;
        Ok(Server { socket, uid, pid: u32::try_from(pid).ok().filter(|pid| *pid > 0) })
    }
}

impl Directory {
    /// Whose name it is; `None`: nobody's. An error if it is not as we make them.
    fn holder(&self, link: &str) -> Result<Option<u16>, Error> {
        if !self.is_there(link, FileType::Symlink, "is no symbolic link")? {
            return Ok(None);
        }
        let text = match fs::readlinkat(&self.fd, link, Vec::new()) {
            Ok(text) => text,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::INVAL) => return Err(self.planted(link, "is no symbolic link")),
            Err(e) => return Err(self.failed(link, e)),
        };
        let number = text.to_str().ok().and_then(parsed);
        number
            .map(Some)
            .ok_or_else(|| self.planted(link, "does not say the number of an address space"))
    }

    fn gate_names(&self) -> Result<Vec<String>, Error> {
        let io = |e: Errno| Error::io(self.path().display().to_string())(e);
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name().to_str().ok().and_then(|name| name.strip_prefix(PREFIX));
            names.extend(name.filter(|name| check_name(name).is_ok()).map(str::to_owned));
        }
        Ok(names)
    }

    /// For the holder of the lock of `number`: removes its names, and then its socket, without
    /// which the names are not looked for.
    pub(crate) fn sweep_gates(&self, number: u16) -> Result<(), Error> {
        let socket = gates_name(number);
        if !self.socket(&socket)? {
            return Ok(());
        }
        for name in self.gate_names()? {
            let link = link_name(&name);
            // What was planted is left to the process that wants that name.
            if matches!(self.holder(&link), Ok(Some(holder)) if holder == number) {
                fs::unlinkat(&self.fd, &link, AtFlags::empty())
                    .map_err(|e| self.failed(&link, e))?;
            }
        }
        self.remove_socket(&socket)
    }

    /// `None`: somebody is at it just now.
    fn try_bind(&self, name: &str, mine: u16) -> Result<Option<()>, Error> {
        let link = link_name(name);
        match fs::symlinkat(mine.to_string(), &self.fd, &link) {
            Ok(()) => return Ok(Some(())),
            Err(Errno::EXIST) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => {
                return Err(Error::Exhausted(format!(
                    "no room for gate {name:?} in {}: the file system has no inodes or blocks left; close gates, make room, \
                     or set KUMI_DIR to another one",
                    self.path().display()
                )));
            }
            Err(e) => return Err(self.failed(&link, e)),
        }
        let Some(holder) = self.holder(&link)? else { return Ok(None) };
        if holder == mine {
            return Err(Error::InUse(format!(
                "gate {name:?} is served by this address space already"
            )));
        }
        // Made if it is not there: nobody begins with this number meanwhile.
        let file = holder.to_string();
        let lock = self.open(&file, true)?.ok_or_else(|| self.failed(&file, Errno::NOENT))?;
        match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return self.living(name, holder).map_or(Ok(None), Err),
            Err(e) => return Err(self.failed(&file, e)),
        }
        // Before we had the lock somebody else may have taken it over.
        if self.holder(&link)? == Some(holder) {
            fs::unlinkat(&self.fd, &link, AtFlags::empty()).map_err(|e| self.failed(&link, e))?;
        }
        Ok(None)
    }

    /// Whether `holder` lives and serves. Its lock is no proof: a process that sweeps or looks has
    /// it too. Its socket is, which the kernel closes with the process.
    fn living(&self, name: &str, holder: u16) -> Option<Error> {
        let by = match socket::reach(
            self,
            holder,
            &gates_name(holder),
            SocketType::SEQPACKET,
            Instant::now() + FULL,
        ) {
            Ok(Reached { pid, .. }) if pid > 0 => format!(" (process {pid})"),
            Ok(_) | Err(Error::Timeout(_)) => String::new(),
            Err(_) => return None,
        };
        Some(Error::InUse(format!(
            "gate {name:?} is served by address space {holder}{by}: end that, or take another name"
        )))
    }
}
