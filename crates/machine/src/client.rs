//! Client: lists the address spaces of a machine, and controls their microprocesses.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumihimo_resource::id::{Id, Kind, SPACES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, SendFlags, SocketType};
use serde::de::DeserializeOwned;

use crate::descriptors::{Descriptors, Kept};
use crate::directory::socket::{self, Reached};
use crate::directory::{Directory, socket_name};
pub use crate::error::Error;
use crate::handler::{Action, Done, Metric, Microprocess, Refused, Resource, Space};
use crate::peer_socket::{PeerSocket, Pending};
use crate::protocol::{
    ActionResult, Bytes, Greeting, LONGEST_ANSWER, Line, MOST_BYTES, PROTOCOL, Request, Text,
};

/// Default time limit of a request.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// A long list arrives in parts. The time limit applies to each wait, and this multiple of it to
/// the whole list.
const WHOLE: u32 = 10;
/// Largest number of bytes in a list; the largest possible table is a fifth of this.
const MOST: u64 = 1 << 30;
/// Number of attempts to connect. A server with too many connections closes one without an answer.
const ATTEMPTS: u32 = 3;

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
        Ok(Machine { directory: Arc::new(Directory::mine()?), time_limit: TIME_LIMIT })
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
        Ok(Machine { directory: Arc::new(Directory::at(path)?), time_limit: TIME_LIMIT })
    }

    /// Sets the time limit for the wait for data, 2 s by default. A long list as a whole may take
    /// ten times as long.
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
        let mut living = Vec::new();
        for number in self.directory.numbers()? {
            let mut neighbour = self.unchecked(number);
            // Other users cannot test the locks, but connecting to a socket without a process
            // fails.
            let lives = if self.directory.is_mine() {
                self.directory.is_living(number)?
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
        let mine = self.directory.is_mine();
        let lives = if mine {
            self.directory.is_living(number)?
        } else {
            self.directory.socket(&socket_name(number))?
        };
        if lives { Ok(self.unchecked(number)) } else { Err(none("")) }
    }

    fn unchecked(&self, number: u16) -> Neighbour {
        Neighbour {
            directory: self.directory.clone(),
            number,
            time_limit: self.time_limit,
            connection: None,
        }
    }
}

/// One address space. The first request connects; a later one connects again if the connection was
/// closed. All requests block the kernel thread, each within the time limit.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::machine::{self, Machine};
/// use kumihimo::thread;
///
/// let worker = thread::Builder::new().name("worker".to_owned()).spawn(thread::park)?;
/// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
/// let names = space.microprocesses()?.into_iter().filter_map(|one| one.name);
/// assert!(names.into_iter().any(|name| name == "worker"));
/// worker.thread().unpark();
/// worker.join().unwrap();
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Neighbour {
    directory: Arc<Directory>,
    number: u16,
    time_limit: Duration,
    connection: Option<Connection>,
}

impl Neighbour {
    /// Returns the number of the address space, which is the first part of its IDs.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::Machine;
    /// use kumihimo::resource::{Region, table};
    /// # kumihimo::runtime::ensure()?;
    ///
    /// let region = Region::new(4096)?;
    /// let space = Machine::mine()?.neighbour(region.id().location().space())?;
    /// assert_eq!(space.number(), table().location().space());
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Describes the address space. Blocks the kernel thread within the time limit.
    ///
    /// # Errors
    /// Returns an [`Error`] of any kind, as all following functions do.
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
    /// let space = Machine::mine()?.neighbour(machine::number()?)?.space()?;
    /// assert_eq!(space.pid, std::process::id());
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn space(&mut self) -> Result<Space, Error> {
        self.one(&Request::Space)
    }

    /// Lists every living microprocess. Blocks the kernel thread within the time limit.
    ///
    /// # Errors
    /// Returns an [`Error`] of any kind.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::{self, Machine};
    /// use kumihimo::thread;
    ///
    /// let workers: Vec<_> = (0..3).map(|_| thread::spawn(thread::park)).collect();
    /// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
    /// let all = space.microprocesses()?;
    /// for worker in workers {
    ///     assert!(all.iter().any(|one| Some(one.id) == worker.thread().id().resource()));
    ///     worker.thread().unpark();
    ///     worker.join().unwrap();
    /// }
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn microprocesses(&mut self) -> Result<Vec<Microprocess>, Error> {
        self.all(&Request::Microprocesses)
    }

    /// Describes one microprocess. Blocks the kernel thread within the time limit.
    ///
    /// # Errors
    /// Returns [`Refused::Stale`] if the microprocess has ended, or an [`Error`] of any other kind.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::{self, Error, Machine, Refused};
    /// use kumihimo::thread;
    ///
    /// let worker = thread::spawn(thread::park);
    /// let id = worker.thread().id().resource().expect("it is a microprocess");
    /// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
    /// assert_eq!(space.microprocess(id)?.id, id);
    ///
    /// worker.thread().unpark();
    /// worker.join().unwrap();
    /// let ended = space.microprocess(id);
    /// assert!(matches!(ended, Err(Error::Refused(Refused::Stale(_)))));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn microprocess(&mut self, id: Id) -> Result<Microprocess, Error> {
        self.one(&Request::Microprocess { id })
    }

    /// Lists the usage table, of one kind or of all. Blocks the kernel thread within the time
    /// limit.
    ///
    /// # Errors
    /// Returns an [`Error`] of any kind.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::{self, Machine};
    /// use kumihimo::resource::{Kind, Region};
    /// # kumihimo::runtime::ensure()?;
    ///
    /// let region = Region::new(4096)?;
    /// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
    /// let regions = space.resources(Some(Kind::REGION))?;
    /// assert_eq!(regions[0].id, region.id());
    /// assert_eq!(regions[0].state, "4096 bytes");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resources(&mut self, kind: Option<Kind>) -> Result<Vec<Resource>, Error> {
        self.all(&Request::Resources { kind: kind.map(|kind| kind.to_string()) })
    }

    /// Suspends, resumes or cancels a microprocess, or changes its priority. Blocks the kernel
    /// thread within the time limit.
    ///
    /// # Errors
    /// Returns an [`Error`] of any kind.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::{self, Action, Done, Machine};
    /// use kumihimo::thread;
    ///
    /// let worker = thread::spawn(thread::park);
    /// let id = worker.thread().id().resource().expect("it is a microprocess");
    /// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
    /// assert_eq!(space.act(id, Action::Priority(50))?, Done::Now);
    /// assert_eq!(worker.thread().priority().get(), 50);
    /// space.act(id, Action::Cancel)?;
    /// assert!(worker.join().is_err(), "it was cancelled");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn act(&mut self, id: Id, action: Action) -> Result<Done, Error> {
        self.one(&Request::Act { id, action }).map(|ActionResult { done }| done)
    }

    /// Returns the backtrace of a microprocess, one line per frame. Blocks the kernel thread within
    /// the time limit.
    ///
    /// # Errors
    /// Returns an [`Error`] of any kind.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::{self, Machine};
    /// use kumihimo::thread;
    ///
    /// let worker = thread::spawn(thread::park);
    /// let id = worker.thread().id().resource().expect("it is a microprocess");
    /// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
    /// assert!(space.backtrace(id)?.lines().count() > 0);
    /// worker.thread().unpark();
    /// worker.join().unwrap();
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn backtrace(&mut self, id: Id) -> Result<String, Error> {
        self.one(&Request::Backtrace { id }).map(|Text { text }| text)
    }

    /// Lists all metrics. Blocks the kernel thread within the time limit.
    ///
    /// # Errors
    /// Returns an [`Error`] of any kind.
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
    /// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
    /// let metrics = space.metrics()?;
    /// assert!(!metrics.is_empty());
    /// assert!(metrics.iter().all(|metric| metric.name.starts_with("kumihimo_")));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metrics(&mut self) -> Result<Vec<Metric>, Error> {
        self.all(&Request::Metrics)
    }

    /// Writes the trace recorded so far to `out`, in Perfetto's format. Blocks the kernel thread
    /// until the trace is complete. There is no limit on the whole, but data must arrive within
    /// each time limit.
    ///
    /// # Errors
    /// Returns [`Refused::Unsupported`] if the address space does not trace, [`Error::Io`] for an
    /// error of `out`, or an [`Error`] of any other kind.
    ///
    /// # Examples
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// # // SAFETY: no other thread of this program runs yet.
    /// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
    /// use kumihimo::machine::{self, Error, Machine, Refused};
    /// # kumihimo::runtime::ensure()?;
    ///
    /// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
    /// let error = space.trace(&mut Vec::new()).unwrap_err();
    /// // This process was started without a trace.
    /// assert!(matches!(error, Error::Refused(Refused::Unsupported(_))));
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trace(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        self.ask(&Request::Trace, &mut |connection, Bytes { bytes }| {
            if bytes > MOST_BYTES {
                return Err(connection.nonsense(&format!("{bytes} bytes in one part")).into());
            }
            connection.whole = None;
            connection.copy(bytes, out)
        })?;
        // The server closes the connection after a trace.
        self.connection = None;
        Ok(())
    }

    fn all<T: DeserializeOwned>(&mut self, ask: &Request) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        self.ask(ask, &mut |_, item| {
            all.push(item);
            Ok(())
        })?;
        Ok(all)
    }

    fn one<T: DeserializeOwned>(&mut self, ask: &Request) -> Result<T, Error> {
        let mut items = self.all(ask)?;
        match (items.pop(), items.is_empty()) {
            (Some(item), true) => Ok(item),
            _ => {
                self.connection = None;
                Err(Error::Protocol(format!(
                    "address space {}: expected exactly one item in the answer",
                    self.number
                )))
            }
        }
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        ask: &Request,
        each: &mut dyn FnMut(&mut Connection, T) -> Result<(), Failure>,
    ) -> Result<(), Error> {
        let line = ask.line();
        let now = Instant::now();
        for _ in 0..ATTEMPTS {
            let mut connection = match self.connection.take() {
                Some(connection) if connection.is_open() => connection,
                _ => self.connect(now + self.time_limit)?,
            };
            connection.deadline = now + self.time_limit;
            connection.whole = Some(now + self.time_limit * WHOLE);
            connection.received = 0;
            match connection.exchange(&line, each) {
                Ok(()) => {
                    self.connection = Some(connection);
                    return Ok(());
                }
                Err(Failure::Closed)
                    if connection.received == 0 && connection.start == connection.buffer.len() => {}
                Err(Failure::Closed) => {
                    let text = format!(
                        "address space {} ended during its answer, or closed the connection",
                        self.number
                    );
                    return Err(Error::Gone(text));
                }
                Err(Failure::Error(error)) => {
                    // After a refusal, both sides are at the end of an answer. After any other
                    // error, the position is unknown.
                    if let Error::Refused(_) = error {
                        self.connection = Some(connection);
                    }
                    return Err(error);
                }
            }
        }
        let lives = self.directory.is_mine() && self.directory.is_living(self.number)?;
        let closes = format!("address space {} closes connections without an answer", self.number);
        Err(if lives {
            Error::Refused(Refused::Busy(format!("{closes}: too many clients connect at once")))
        } else {
            Error::Gone(format!("{closes}: it is ending"))
        })
    }

    fn connect(&self, deadline: Instant) -> Result<Connection, Error> {
        let number = self.number;
        let name = socket_name(number);
        let Reached { socket, uid, pid } =
            socket::reach(&self.directory, number, &name, SocketType::STREAM, deadline)?;
        net::sockopt::set_socket_timeout(
            &socket,
            net::sockopt::Timeout::Send,
            Some(self.time_limit),
        )
        .map_err(Error::io(format!("address space {number}")))?;
        let socket = PeerSocket::opaque(Kept::new(socket, &Descriptors::new()), uid);
        let mut connection = Connection {
            number,
            socket,
            pid,
            time_limit: self.time_limit,
            buffer: Vec::new(),
            start: 0,
            received: 0,
            deadline,
            whole: Some(deadline),
        };
        connection.greeting().map_err(|failure| match failure {
            Failure::Closed => socket::gone(number, "the connection was closed"),
            Failure::Error(error) => error,
        })?;
        Ok(connection)
    }
}

enum Failure {
    /// The server closed the connection.
    Closed,
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

#[derive(Debug)]
struct Connection {
    number: u16,
    socket: PeerSocket,
    /// 0 if the process is in a pid namespace that is not visible from this one.
    pid: i32,
    time_limit: Duration,
    buffer: Vec<u8>,
    /// The bytes before this position were read.
    start: usize,
    /// Number of bytes of this answer.
    received: u64,
    /// Time by which data must arrive.
    deadline: Instant,
    /// Time by which the answer must end, if that is limited.
    whole: Option<Instant>,
}

impl Connection {
    /// Reads the greeting. The server sends first, so no request reaches a server of another kind.
    fn greeting(&mut self) -> Result<(), Failure> {
        let line = self.line()?;
        let greeting = match Line::<Greeting>::parse(&self.buffer[line]) {
            Ok(Line::Item(greeting)) => greeting,
            Ok(Line::Error(refused)) => return Err(Error::Refused(refused).into()),
            Ok(Line::End(_)) => return Err(self.nonsense("an end without an answer").into()),
            Err(e) => return Err(self.nonsense(&e).into()),
        };
        if greeting.protocol != PROTOCOL {
            return Err(Error::Protocol(format!(
                "address space {} (Kumihimo {}) uses protocol {}, but this program (Kumihimo {}) uses protocol {PROTOCOL}: use the same version",
                self.number,
                greeting.version,
                greeting.protocol,
                env!("CARGO_PKG_VERSION")
            ))
            .into());
        }
        if greeting.space != self.number {
            return Err(self
                .nonsense(&format!("its greeting names address space {}", greeting.space))
                .into());
        }
        Ok(())
    }

    /// Returns whether the connection is open: no data has arrived since the last answer.
    fn is_open(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        self.start == self.buffer.len()
            && matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }

    fn exchange<T: DeserializeOwned>(
        &mut self,
        request: &[u8],
        each: &mut dyn FnMut(&mut Connection, T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.send(request)?;
        let mut count = 0;
        loop {
            let line = self.line()?;
            match Line::parse(&self.buffer[line]) {
                Ok(Line::Item(item)) => {
                    count += 1;
                    each(self, item)?;
                }
                Ok(Line::End(of)) if of == count => return Ok(()),
                Ok(Line::End(of)) => {
                    return Err(self.nonsense(&format!("{count} of {of} lines arrived")).into());
                }
                Ok(Line::Error(refused)) => return Err(Error::Refused(refused).into()),
                Err(e) => return Err(self.nonsense(&e).into()),
            }
        }
    }

    fn send(&mut self, mut line: &[u8]) -> Result<(), Failure> {
        while !line.is_empty() {
            match net::send(&self.socket, line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => line = &line[n..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                // The answer that the server sent before it closed the connection may contain the
                // reason.
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(e) => return Err(self.io(e)),
            }
        }
        Ok(())
    }

    /// Reads the next line, and returns its range in the buffer, without its end.
    fn line(&mut self) -> Result<std::ops::Range<usize>, Failure> {
        let mut searched = self.start;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.start..searched + at;
                self.start = line.end + 1;
                return Ok(line);
            }
            searched = self.buffer.len() - self.start;
            if searched > LONGEST_ANSWER {
                return Err(self.nonsense("a line without an end").into());
            }
            self.receive()?;
        }
    }

    /// Copies the next `bytes` bytes to `out`.
    fn copy(&mut self, mut bytes: usize, out: &mut dyn Write) -> Result<(), Failure> {
        while bytes > 0 {
            if self.start == self.buffer.len() {
                self.receive()?;
            }
            let part = &self.buffer[self.start..][..bytes.min(self.buffer.len() - self.start)];
            out.write_all(part).map_err(|e| Error::Io("the trace's output".into(), e))?;
            self.start += part.len();
            bytes -= part.len();
        }
        Ok(())
    }

    /// Receives more bytes. Moves the unread bytes to the beginning of the buffer, and appends the
    /// new ones.
    fn receive(&mut self) -> Result<(), Failure> {
        const AT_ONCE: usize = 256 << 10;
        self.buffer.drain(..self.start);
        self.start = 0;
        let filled = self.buffer.len();
        self.buffer.resize(filled + AT_ONCE, 0);
        let received = loop {
            match self.socket.receive(&mut self.buffer[filled..]) {
                Ok(Pending::End) | Err(Errno::CONNRESET) => break Err(Failure::Closed),
                Ok(Pending::Plain(n)) => break Ok(n),
                Ok(Pending::Descriptor) => {
                    break Err(self.nonsense("it passes a descriptor").into());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if let Err(failure) = self.wait(PollFlags::IN) {
                        break Err(failure);
                    }
                }
                Err(e) => break Err(self.io(e)),
            }
        };
        self.buffer.truncate(filled + *received.as_ref().unwrap_or(&0));
        self.received += received? as u64;
        self.deadline = Instant::now() + self.time_limit;
        if self.whole.is_some() && self.received > MOST {
            return Err(self.nonsense("an answer without an end").into());
        }
        Ok(())
    }

    fn wait(&self, for_what: PollFlags) -> Result<(), Failure> {
        let deadline = self.whole.map_or(self.deadline, |whole| whole.min(self.deadline));
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), for_what)];
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) if left.is_zero() => return Err(self.silence().into()),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(self.io(e)),
            }
        }
    }

    /// Returns why no data arrives.
    fn silence(&self) -> Error {
        let (number, pid) = (self.number, self.pid);
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the program's name, which may contain any characters: proc_pid_stat(5).
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        if matches!(state, Some('T' | 't')) {
            return Error::Stopped(format!(
                "address space {number} is stopped and cannot answer: kill -CONT {pid}, or detach its debugger"
            ));
        }
        let process = if pid == 0 {
            "a process in another pid namespace".to_owned()
        } else {
            format!("process {pid}")
        };
        Error::Timeout(format!(
            "address space {number} ({process}) did not answer within {:?}",
            self.time_limit
        ))
    }

    fn nonsense(&self, what: &str) -> Error {
        Error::Protocol(format!(
            "address space {}: invalid answer ({what}); it may be another version of Kumihimo",
            self.number
        ))
    }

    fn io(&self, e: Errno) -> Failure {
        Failure::Error(Error::Io(format!("address space {}", self.number), e.into()))
    }
}
