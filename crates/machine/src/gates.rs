//! Gates by name: finds the server of a gate in the run-time directory, without a daemon.
//!
//! `gate.NAME` is a symbolic link whose text is the number of an address space; it is never
//! followed. Only the holder of a number's lock creates and removes names with that number. If the
//! holder is dead, the process that locks the number takes the name over; two processes cannot do
//! so at the same time.
//!
//! Names exist only while the socket `N.gates` exists. A process that finds the socket of a dead
//! address space, or takes its number, removes the socket and the names. Without a socket, there
//! are no names to remove.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags};
use rustix::net::SocketType;

use crate::client::Machine;
pub use crate::directory::gate_names::{LONGEST_NAME, check_name};
use crate::directory::gate_names::{gates_name, link_name};
use crate::directory::retry_within;
use crate::directory::socket::{self, Reached};
use crate::error::Error;
use crate::socket::peer_socket::PeerSocket;
use crate::space::Number;

/// Backlog: number of connecting clients that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Limit for waiting on a dead address space's lock. A process holds it while it removes the names:
/// 100,000 names on a disk take 3 s. Only a process that is stopped meanwhile holds it longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The gates of this address space: the socket at which callers connect, and the names. They exist
/// until this value is dropped.
///
/// In the child of a fork, they belong to the parent. [`Number::forget_in_child`] closes the copy
/// of the socket, and dropping this value then has no effect.
#[derive(Debug)]
pub struct Gates {
    number: Arc<Number>,
    listener: PeerSocket,
    bound: AtomicU64,
}

impl Gates {
    /// Opens the socket `N.gates` (SOCK_SEQPACKET, close on exec, non-blocking, mode 0600) and
    /// listens. A number has one such socket at a time.
    ///
    /// # Errors
    /// Returns [`Error::Directory`] if the directory is full or a foreign entry has this name, and
    /// [`Error::Io`] for other failures.
    pub fn open(number: Arc<Number>) -> Result<Gates, Error> {
        let name = gates_name(number.number);
        let listener = socket::listen(&number.directory, &name, SocketType::SEQPACKET, BACKLOG)?;
        let own = number.directory.owner();
        let listener = PeerSocket::opaque(number.directory.keep(listener), own);
        Ok(Gates { number, listener, bound: AtomicU64::new(0) })
    }

    /// Returns the number of the address space.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number.number
    }

    /// Returns the owner (user ID) of the run-time directory.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.number.directory.owner()
    }

    /// Registers `name`, at the cost of some microseconds and one inode. Takes over a name that a
    /// dead address space has left. If another process is removing such names, waits for it, at
    /// most 5 s. Blocks the kernel thread.
    ///
    /// # Errors
    /// - [`Error::Invalid`]: the name is not allowed; see [`check_name`].
    /// - [`Error::InUse`]: a living address space, possibly this one, has the name.
    /// - [`Error::Exhausted`]: the directory is full.
    /// - [`Error::Directory`]: a foreign entry has this name.
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
                "gate {name:?} belongs to an address space that is still ending; try again later"
            )));
        }
        self.bound.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Removes a name. Returns `false` if this address space does not have it.
    ///
    /// # Errors
    /// Returns [`Error::Invalid`], [`Error::Directory`] or [`Error::Io`].
    pub fn unbind(&self, name: &str) -> Result<bool, Error> {
        check_name(name)?;
        let (directory, link) = (&self.number.directory, link_name(name));
        // No other process removes or replaces the link while this one holds the lock.
        if std::process::id() != self.number.pid || directory.holder(&link)? != Some(self.number())
        {
            return Ok(false);
        }
        fs::unlinkat(&directory.fd, &link, AtFlags::empty())
            .map_err(|e| directory.failed(&link, e))?;
        self.bound.fetch_sub(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Sets whether the socket's mode permits other users to connect. The accepting server decides
    /// on their admission. Other users reach the socket only if they may search all directories
    /// above the run-time directory. The run-time directory itself is made searchable and stays so:
    /// from then on, other users can see its numbers and gates.
    ///
    /// # Errors
    /// Returns the error of changing the modes of directory and socket.
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

/// A connection to a server of gates.
#[derive(Debug)]
pub struct Server {
    /// The connected socket: SOCK_SEQPACKET, close on exec, blocking.
    pub socket: OwnedFd,
    /// The user of the server's process, which is the owner of the directory.
    pub uid: u32,
    /// `None` if the process is in a pid namespace that is not visible from this one.
    pub pid: Option<u32>,
}

impl Machine {
    /// Returns the server of gate `name`: the number of a living address space. In another user's
    /// directory, the locks cannot be tested, so the address space may be dead; connecting then
    /// fails.
    ///
    /// # Errors
    /// Returns [`Error::Invalid`] if the name is not allowed (see [`check_name`]), and
    /// [`Error::Directory`] if a foreign entry has this name.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    /// use kumihimo::machine::{self, Machine};
    ///
    /// let _serving = Gate::serve("square", |n: u32| n * n)?;
    /// let machine = Machine::mine()?;
    /// assert_eq!(machine.gate("square")?, Some(machine::number()?));
    /// assert_eq!(machine.gate("cube")?, None);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gate(&self, name: &str) -> Result<Option<u16>, Error> {
        check_name(name)?;
        let Some(number) = self.directory.holder(&link_name(name))? else { return Ok(None) };
        let lives = !self.directory.is_mine() || self.directory.is_living(number)?;
        Ok(Some(number).filter(|_| lives))
    }

    /// Returns all gates that are served, sorted by name, with their servers. The limitation of
    /// [`gate`](Machine::gate) applies.
    ///
    /// # Errors
    /// Returns [`Error::Directory`] if the directory contains a foreign entry of this form.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    /// use kumihimo::machine::{self, Machine};
    ///
    /// let _serving = (Gate::serve("b", |n: u32| n * n)?, Gate::serve("a", |n: u32| n + 1)?);
    /// let number = machine::number()?;
    /// let gates = Machine::mine()?.gates()?;
    /// assert_eq!(gates, [("a".to_owned(), number), ("b".to_owned(), number)]);
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

    /// Connects to the gate server of address space `number`. Blocks the kernel thread until
    /// `deadline` at most.
    ///
    /// # Errors
    /// - [`Error::Gone`]: the address space has ended, or closed its gates.
    /// - [`Error::Timeout`]: the server is stopped, or too many clients are waiting.
    /// - [`Error::Refused`]: other users may not connect.
    /// - [`Error::Directory`]: another user serves the socket, or the entry is foreign.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::gate::Gate;
    /// use kumihimo::machine::{self, Machine};
    /// use std::time::{Duration, Instant};
    ///
    /// let _serving = Gate::serve("square", |n: u32| n * n)?;
    /// let deadline = Instant::now() + Duration::from_secs(60);
    /// let server = Machine::mine()?.connect(machine::number()?, deadline)?;
    /// assert_eq!(server.pid, Some(std::process::id()));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect(&self, number: u16, deadline: Instant) -> Result<Server, Error> {
        let name = gates_name(number);
        let Reached { socket, uid, pid } = socket::reach(
            &self.directory,
            &socket::space(number),
            &name,
            SocketType::SEQPACKET,
            deadline,
        )?;
        Ok(Server { socket, uid, pid: u32::try_from(pid).ok().filter(|pid| *pid > 0) })
    }
}
