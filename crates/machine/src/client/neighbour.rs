//! An address space of the machine, and requests to its control socket.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumihimo_resource::id::{Id, Kind};
use rustix::net::{self, SocketType};
use serde::de::DeserializeOwned;

use super::remote::Remote;
use crate::directory::socket;
use crate::directory::{Directory, socket_name};
use crate::error::Error;
use crate::handler::{Action, Done, Metric, Microprocess, Refused, Resource, Space};
use crate::locks::Locks;
use crate::profile::{ProfileItem, ProfileQuery};
use crate::protocol::{ActionResult, Bytes, MOST_BYTES, Request, Text};
use crate::socket::connection::{Connection, Failure};
use crate::top::{TopItem, TopQuery};

/// A long list arrives in parts. The time limit applies to each wait, and this multiple of it to
/// the whole list.
const WHOLE: u32 = 10;
/// Number of attempts to connect. A server with too many connections closes one without an answer.
const ATTEMPTS: u32 = 3;

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
    pub(crate) directory: Arc<Directory>,
    pub(crate) number: u16,
    /// The machine of the address space, if it is another one.
    pub(crate) remote: Option<Remote>,
    pub(crate) time_limit: Duration,
    pub(crate) connection: Option<Connection>,
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

    /// Returns totals, and some microprocesses with their counters, for `kumi top`. Blocks the
    /// kernel thread within the time limit.
    ///
    /// # Errors
    /// Returns [`Refused::Unsupported`] if the address space has no counters, or an [`Error`] of
    /// any other kind.
    #[doc(hidden)]
    pub fn top(&mut self, query: &TopQuery) -> Result<Vec<TopItem>, Error> {
        self.all(&Request::Top { query: query.clone() })
    }

    /// Lists the locks for which microprocesses wait, with holders and waiters, and the chains
    /// among the waiters: at most `limit` locks and as many chains. Blocks the kernel thread within
    /// the time limit.
    ///
    /// # Errors
    /// Returns [`Refused::Unsupported`] if the address space does not report holders, or an
    /// [`Error`] of any other kind.
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
    /// let report = space.locks(100)?;
    /// assert_eq!(report.totals.cycles, 0, "there is no deadlock");
    /// # std::fs::remove_dir_all(&folder).ok();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn locks(&mut self, limit: u32) -> Result<Locks, Error> {
        let mut locks = Locks::default();
        self.ask(&Request::Locks { limit }, &mut |_, item| {
            locks.add(item);
            Ok(())
        })?;
        Ok(locks)
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

    /// Profiles the address space. Calls `each` for what arrives, and `wants_end` at least four
    /// times a second; after that returned true, the rest arrives. Blocks the kernel thread until
    /// the profile is complete. Data must arrive within each time limit.
    ///
    /// # Errors
    /// Returns [`Refused::Busy`] if the address space is being profiled, [`Refused::Unsupported`]
    /// if it cannot be profiled, and [`Error::Gone`] if it ends meanwhile; what `each` has received
    /// until then is valid.
    #[doc(hidden)]
    pub fn profile(
        &mut self,
        query: &ProfileQuery,
        each: &mut dyn FnMut(ProfileItem),
        wants_end: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        let mut ends = false;
        self.ask(&Request::Profile { query: query.clone() }, &mut |connection, item| {
            connection.whole = None;
            each(item);
            if !ends && wants_end() {
                ends = true;
                // An error means that the server has gone, which the next read reports.
                let _ = net::shutdown(&connection.socket, net::Shutdown::Write);
            }
            Ok(())
        })?;
        // The server closes the connection after a profile.
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
                    "{}: expected exactly one item in the answer",
                    self.server()
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
                    return Err(match &self.remote {
                        // The border closes a connection whose machine it has lost.
                        Some(remote) => remote.lost(self.number),
                        None => Error::Gone(format!(
                            "{} ended during its answer, or closed the connection",
                            self.server()
                        )),
                    });
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
        let lives = self.remote.is_none()
            && self.directory.is_mine()
            && self.directory.is_living(self.number)?;
        let closes = format!("{} closes connections without an answer", self.server());
        Err(if lives {
            Error::Refused(Refused::Busy(format!("{closes}: too many clients connect at once")))
        } else {
            Error::Gone(format!("{closes}: it is ending"))
        })
    }

    pub(crate) fn connect(&self, deadline: Instant) -> Result<Connection, Error> {
        let number = self.number;
        let mut connection = match &self.remote {
            Some(remote) => remote.connect(&self.directory, number, self.time_limit, deadline)?,
            None => {
                let (server, name) = (socket::space(number), socket_name(number));
                let reached =
                    socket::reach(&self.directory, &server, &name, SocketType::STREAM, deadline)?;
                Connection::new(server, reached, self.time_limit, deadline)?
            }
        };
        connection.greeting(number).map_err(|failure| match failure {
            Failure::Closed => socket::gone(&connection.server, "the connection was closed"),
            Failure::Error(error) => error,
        })?;
        Ok(connection)
    }

    /// Returns what messages call the address space.
    fn server(&self) -> String {
        match &self.remote {
            Some(remote) => remote.server(self.number),
            None => socket::space(self.number),
        }
    }
}
