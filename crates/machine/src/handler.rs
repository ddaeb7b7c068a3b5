//! Interface between the runtime, which answers requests, the control socket, which transports
//! them, and [`crate::client`], which makes them.

use std::fmt;
use std::io;
use std::time::Duration;

use kumihimo_resource::id::{Id, Kind};
use serde::{Deserialize, Serialize};

pub use crate::locks::LockItem;
pub use crate::microprocess::{Microprocess, State};
use crate::profile::{ProfileItem, ProfileQuery};
use crate::top::{TopItem, TopQuery};

/// Description of an address space.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::machine::{self, Machine, Space};
/// # kumihimo::runtime::ensure()?;
///
/// let Space { pid, vps, mode, .. } = Machine::mine()?.neighbour(machine::number()?)?.space()?;
/// assert_eq!(pid, std::process::id());
/// assert!(vps > 0 && mode == "microprocesses");
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// ID of the address space, of kind `space`.
    pub id: Id,
    /// ID of the process in its own pid namespace; other namespaces use other numbers.
    pub pid: u32,
    /// Path of the program, if it can be determined.
    pub program: String,
    /// Version of the library in the address space.
    pub version: String,
    /// Number of virtual processors; 0 while no runtime runs.
    pub vps: u16,
    /// Number of living microprocesses.
    pub living: u64,
    /// Queue design.
    pub queue: String,
    /// Policy.
    pub policy: String,
    /// Event source.
    pub events: String,
    /// Locking design.
    pub locking: String,
    /// How microprocesses are implemented: `microprocesses`, or `kernel-threads` (1:1). Empty if an
    /// older version does not report it.
    #[serde(default)]
    pub mode: String,
    /// Why microprocesses are kernel threads, if they are.
    #[serde(default)]
    pub why: Option<String>,
    /// Number of the runtime's kernel threads; 0 if unknown.
    #[serde(default)]
    pub kernel_threads: u32,
    /// Limit on `kernel_threads`; 0 if unknown.
    #[serde(default)]
    pub most_kernel_threads: u32,
}

/// A row of the usage table (P3, figures 5 and 6).
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::machine::{self, Machine};
/// use kumihimo::resource::{Kind, Name, Region, table};
/// # kumihimo::runtime::ensure()?;
///
/// let region = Region::new(4096)?;
/// table().name(&Name::new(Kind::REGION, "frame")?, region.id())?;
/// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
/// let resource = space.resources(Some(Kind::REGION))?.remove(0);
/// assert_eq!((resource.id, resource.owner), (region.id(), None));
/// assert_eq!(resource.names, ["/region/frame"]);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Kind and serial of the resource.
    pub id: Id,
    /// User of the resource, if any: a microprocess, a virtual processor or an address space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Id>,
    /// State of the resource, as a term of its kind.
    pub state: String,
    /// Names of the resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// An action on a microprocess.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::machine::{self, Action, Machine, State};
/// use kumihimo::thread;
///
/// let worker = thread::spawn(thread::park);
/// let id = worker.thread().id().resource().expect("it is a microprocess");
/// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
/// space.act(id, Action::Suspend)?;
/// worker.thread().unpark();
/// assert_eq!(space.microprocess(id)?.state, State::Suspended);
/// space.act(id, Action::Resume)?;
/// worker.join().unwrap();
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Stops the microprocess until it is resumed.
    Suspend,
    /// Lets the microprocess run again.
    Resume,
    /// Cancels the microprocess, like `Thread::cancel`.
    Cancel,
    /// Sets the priority, 0 to 63, like `Thread::set_priority`.
    Priority(u8),
}

/// The result of an [`Action`].
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
/// assert_eq!(space.act(id, Action::Resume)?, Done::Already, "it is not suspended");
/// assert_eq!(space.act(id, Action::Suspend)?, Done::Now);
/// assert_eq!(space.act(id, Action::Suspend)?, Done::Already);
/// assert_eq!(space.act(id, Action::Resume)?, Done::Now);
/// worker.thread().unpark();
/// worker.join().unwrap();
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Done {
    /// The action has taken effect.
    Now,
    /// The microprocess was already in the requested state: suspended, or not suspended.
    Already,
    /// The action takes effect when the microprocess returns from the kernel, where it sleeps.
    OnReturn,
    /// The action is requested, but the microprocess has not reached a point at which it can stop.
    /// For example, it is in the C library, or its virtual processor has not run since.
    Asked,
}

/// Reasons why a request was not performed.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::machine::{self, Action, Error, Machine, Refused};
/// use kumihimo::resource::Region;
/// # kumihimo::runtime::ensure()?;
///
/// let region = Region::new(4096)?;
/// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
/// match space.act(region.id(), Action::Suspend) {
///     Err(Error::Refused(Refused::Wrong(text))) => assert!(text.contains("not a microprocess")),
///     other => panic!("a region cannot be suspended: {other:?}"),
/// }
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "message")]
#[non_exhaustive]
pub enum Refused {
    /// The ID's resource has ended, or never existed.
    Stale(String),
    /// The ID is of another kind, or of another address space.
    Wrong(String),
    /// This address space does not support the request, for example because microprocesses are
    /// kernel threads.
    Unsupported(String),
    /// The caller has no permission.
    Denied(String),
    /// Too many requests are in progress.
    Busy(String),
    /// The request is invalid.
    Invalid(String),
    /// An operation failed.
    Failed(String),
    /// The border does not reach the machine, so that nothing was sent to it.
    Unreachable(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Refused::Stale(text)
        | Refused::Wrong(text)
        | Refused::Unsupported(text)
        | Refused::Denied(text)
        | Refused::Busy(text)
        | Refused::Invalid(text)
        | Refused::Failed(text)
        | Refused::Unreachable(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Refused {}

/// A counted or measured value, in the model of Prometheus.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::machine::{self, Machine, Metric};
/// # kumihimo::runtime::ensure()?;
///
/// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
/// for Metric { name, help, samples, .. } in space.metrics()? {
///     assert!(name.starts_with("kumihimo_") && !help.is_empty());
///     assert!(samples.iter().all(|(_labels, value)| value.is_finite()));
/// }
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// `kumihimo_...`, including the unit.
    pub name: String,
    /// Description of the value, in one line.
    pub help: String,
    /// Whether the value only grows.
    pub counter: bool,
    /// Labels and value of each sample.
    pub samples: Vec<(Vec<(String, String)>, f64)>,
}

/// The client of a profile.
pub trait ProfileClient {
    /// Sends an item. May block for some seconds, while the client does not read.
    ///
    /// # Errors
    /// Returns an error if the client has gone, or does not read.
    fn send(&mut self, item: ProfileItem) -> io::Result<()>;

    /// Waits for this time. Returns false at once when the client wants the profile to end.
    fn wait(&mut self, time: Duration) -> bool;
}

/// Answers requests to an address space. Called on the kernel thread that serves the control
/// socket. It may take locks and wait for a bounded time. It does not stop the microprocesses that
/// it examines, unless the request demands that.
pub trait ControlHandler: Send + Sync {
    /// Reports that the calling kernel thread receives notifications from now on. Each
    /// [`notify`](crate::space::Number::notify) with this number then leads to a call of
    /// [`on_notification`](ControlHandler::on_notification).
    fn on_listening(&self, number: u16) {
        let _ = number;
    }

    /// Handles a notification of another address space about a change on the board that concerns
    /// this one. `from` is the core on which the sender runs, as a hint. May be spurious.
    fn on_notification(&self, from: u32) {
        let _ = from;
    }

    /// Describes the address space.
    fn space(&self) -> Space;

    /// Calls `each` for every living microprocess, in its state at that moment.
    fn microprocesses(&self, each: &mut dyn FnMut(Microprocess));

    /// Describes one microprocess.
    ///
    /// # Errors
    /// Returns [`Refused::Stale`] or [`Refused::Wrong`].
    fn microprocess(&self, id: Id) -> Result<Microprocess, Refused>;

    /// Calls `each` for the rows of the usage table, of one kind or of all.
    fn resources(&self, kind: Option<Kind>, each: &mut dyn FnMut(Resource));

    /// Performs an action, and waits up to about a second for it to take effect.
    ///
    /// # Errors
    /// Returns a [`Refused`] of any kind.
    fn act(&self, id: Id, action: Action) -> Result<Done, Refused>;

    /// Returns the backtrace of a microprocess as text, one line per frame.
    ///
    /// # Errors
    /// Returns a [`Refused`] of any kind.
    fn backtrace(&self, id: Id) -> Result<String, Refused>;

    /// Answers a query of `kumi top`: calls `each` for the totals, and then for rows or groups.
    ///
    /// # Errors
    /// Returns [`Refused::Unsupported`] if the address space has no counters.
    fn top(&self, query: &TopQuery, each: &mut dyn FnMut(TopItem)) -> Result<(), Refused> {
        let _ = (query, each);
        Err(Refused::Unsupported("that address space has no counters of microprocesses".into()))
    }

    /// Ends what a session of [`top`](ControlHandler::top) has turned on: its connection is closed.
    /// Does not block.
    fn end_top(&self, session: u64) {
        let _ = session;
    }

    /// Calls `each` for the totals of the locks for which microprocesses wait, and then for at most
    /// `limit` locks and as many chains.
    ///
    /// # Errors
    /// Returns [`Refused::Unsupported`] if the address space does not find holders of locks.
    fn locks(&self, limit: u32, each: &mut dyn FnMut(LockItem)) -> Result<(), Refused> {
        let _ = (limit, each);
        Err(Refused::Unsupported("that address space does not report holders of locks".into()))
    }

    /// Returns all metrics.
    fn metrics(&self) -> Vec<Metric>;

    /// Samples the microprocesses, and sends what it finds to `client` several times a second,
    /// until the time is over or the client has enough. Called on a kernel thread of its own.
    ///
    /// # Errors
    /// Returns [`Refused::Busy`] if a profile is in progress, and [`Refused::Unsupported`] if the
    /// address space cannot be profiled.
    fn profile(&self, query: &ProfileQuery, client: &mut dyn ProfileClient) -> Result<(), Refused> {
        let _ = (query, client);
        Err(Refused::Unsupported("that address space cannot be profiled".into()))
    }

    /// Writes the trace recorded so far, in Perfetto's format.
    ///
    /// # Errors
    /// Returns `Unsupported` if the address space does not trace, or an error of `out`.
    fn trace(&self, out: &mut dyn io::Write) -> io::Result<()>;
}
