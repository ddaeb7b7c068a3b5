//! Client: lists the address spaces of a machine, and controls their microprocesses.
//!
//! `neighbour`: a connection to one address space; `answering`: whether it can answer; `remote`:
//! other machines, through the border of this one.

pub(crate) mod answering;
mod neighbour;
mod remote;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumihimo_resource::id::SPACES;
use rustix::net::SocketType;

use crate::directory::socket;
use crate::directory::{Directory, socket_name};
pub use crate::error::Error;
pub use neighbour::Neighbour;
use remote::Remote;

/// Default time limit of a request.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// The address spaces of one user on this machine, as found in the user's run-time directory.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::machine::{self, Machine};
/// # kumihimo::runtime::ensure()?;
///
/// let machine = Machine::mine()?;
/// let numbers: Vec<u16> = machine.spaces()?.iter().map(|space| space.number()).collect();
/// assert!(numbers.contains(&machine::number()?), "this process is one of them");
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) directory: Arc<Directory>,
    time_limit: Duration,
    /// The machine, if it is another one than that of the directory.
    remote: Option<Remote>,
}

impl Machine {
    /// Opens the caller's run-time directory; see [`Directory::mine`] for its place.
    ///
    /// # Errors
    /// Returns [`Error::Directory`] if there is no usable directory.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::Machine;
    ///
    /// let machine = Machine::mine()?;
    /// assert!(machine.path().is_dir());
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mine() -> Result<Machine, Error> {
        Ok(Machine::of(Directory::mine()?))
    }

    /// Opens the run-time directory at `path`, of any user.
    ///
    /// # Errors
    /// Returns [`Error::Directory`] if the directory cannot be used.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::{Error, Machine};
    ///
    /// let mine = Machine::mine()?;
    /// assert_eq!(Machine::at(mine.path())?.path(), mine.path());
    /// let none = Machine::at(&mine.path().join("none"));
    /// assert!(matches!(none, Err(Error::Directory(_))));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at(path: &Path) -> Result<Machine, Error> {
        Ok(Machine::of(Directory::at(path)?))
    }

    fn of(directory: Directory) -> Machine {
        Machine { directory: Arc::new(directory), time_limit: TIME_LIMIT, remote: None }
    }

    /// See [`Directory::passed_over`].
    #[doc(hidden)]
    #[must_use]
    pub fn passed_over(&self) -> &[String] {
        self.directory.passed_over()
    }

    /// Sets the time limit for the wait for data, 2 s by default. A long list as a whole may take
    /// ten times as long. An address space whose answering thread runs, or waits for a core on a
    /// busy machine, gets up to half a minute more.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::{self, Machine};
    /// use std::time::Duration;
    /// # kumihimo::runtime::ensure()?;
    ///
    /// let machine = Machine::mine()?.time_limit(Duration::from_secs(60));
    /// assert!(machine.neighbour(machine::number()?)?.space().is_ok());
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn time_limit(self, time_limit: Duration) -> Machine {
        Machine { time_limit, ..self }
    }

    /// Returns the path of the run-time directory.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::{self, Machine};
    /// # kumihimo::runtime::ensure()?;
    ///
    /// let socket = Machine::mine()?.path().join(format!("{}.socket", machine::number()?));
    /// assert!(socket.exists());
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the living address spaces in the order of their numbers. Removes the files of dead
    /// ones if the directory is the caller's own. An address space may end at any time; requests to
    /// it then fail with [`Error::Gone`].
    ///
    /// In another user's directory, connects to each address space. That blocks the kernel thread
    /// until the address space answers, within the time limit.
    ///
    /// # Errors
    /// Returns [`Error::Directory`] if the directory contains an entry that Kumihimo did not
    /// create.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::Machine;
    /// # kumihimo::runtime::ensure()?;
    ///
    /// let mut processes = Vec::new();
    /// for mut space in Machine::mine()?.spaces()? {
    ///     processes.push(space.space()?.pid);
    /// }
    /// assert!(processes.contains(&std::process::id()));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spaces(&self) -> Result<Vec<Neighbour>, Error> {
        if let Some(remote) = &self.remote {
            let deadline = Instant::now() + self.time_limit;
            let numbers = remote.spaces(&self.directory, self.time_limit, deadline)?;
            return Ok(numbers.into_iter().map(|number| self.unchecked(number)).collect());
        }
        let mut living = Vec::new();
        for number in self.directory.numbers()? {
            let mut neighbour = self.unchecked(number);
            // An address space that starts or ends may have other sockets than the control socket.
            // Other users cannot test the locks, but connecting to a socket without a process
            // fails.
            let lives = if self.directory.is_mine() {
                self.directory.is_living(number)? && self.directory.socket(&socket_name(number))?
            } else {
                match neighbour.connect(Instant::now() + self.time_limit) {
                    Ok(connection) => {
                        neighbour.connection = Some(connection);
                        true
                    }
                    Err(Error::Gone(_)) => false,
                    Err(e @ Error::Directory(_)) => return Err(e),
                    // The address space is alive; its first request returns this error again.
                    Err(_) => true,
                }
            };
            if lives {
                living.push(neighbour);
            }
        }
        Ok(living)
    }

    /// Returns address space `number`; in an ID, the number is `id.location().space()`.
    ///
    /// # Errors
    /// Returns [`Error::Gone`] if there is none, and [`Error::Directory`] if the directory cannot
    /// be used.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::{self, Error, Machine};
    /// # kumihimo::runtime::ensure()?;
    ///
    /// let machine = Machine::mine()?;
    /// let own = machine::number()?;
    /// assert_eq!(machine.neighbour(own)?.number(), own);
    /// assert!(matches!(machine.neighbour(4000), Err(Error::Gone(_))));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn neighbour(&self, number: u16) -> Result<Neighbour, Error> {
        let none = |why: &str| {
            Error::Gone(format!(
                "there is no address space {number} in {}{why}",
                self.path().display()
            ))
        };
        if number == 0 {
            return Err(none(
                ": number 0 means that an address space has no number and cannot be found",
            ));
        }
        if number >= SPACES {
            return Err(none(&format!(": the largest number is {}", SPACES - 1)));
        }
        if self.remote.is_some() {
            let mut neighbour = self.unchecked(number);
            neighbour.connection = Some(neighbour.connect(Instant::now() + self.time_limit)?);
            return Ok(neighbour);
        }
        let mine = self.directory.is_mine();
        let lives = if mine {
            self.directory.is_living(number)?
        } else {
            self.directory.socket(&socket_name(number))?
        };
        if lives { Ok(self.unchecked(number)) } else { Err(none("")) }
    }

    /// Connects to the control socket of address space `number` of this machine. The greeting is
    /// still to be read: for the border, which passes on what comes.
    ///
    /// # Errors
    /// Returns the errors of [`neighbour`](Machine::neighbour), and those of connecting.
    #[doc(hidden)]
    pub fn control_socket(&self, number: u16) -> Result<OwnedFd, Error> {
        self.neighbour(number)?;
        let (server, name) = (socket::space(number), socket_name(number));
        let deadline = Instant::now() + self.time_limit;
        socket::reach(&self.directory, &server, &name, SocketType::STREAM, deadline)
            .map(|reached| reached.socket)
    }

    fn unchecked(&self, number: u16) -> Neighbour {
        Neighbour {
            directory: self.directory.clone(),
            number,
            remote: self.remote.clone(),
            time_limit: self.time_limit,
            connection: None,
        }
    }
}
