//! What an address space says and does when it is asked from outside: the contract between the
//! runtime, which answers, the control socket, which carries, and [`crate::client`], which asks.

use std::fmt;
use std::io;

use kumihimo_resource::id::{Id, Kind};
use serde::{Deserialize, Serialize};

/// An address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Its id: kind `space`.
    pub id: Id,
    /// As it sees itself; in another pid namespace it has another number here.
    pub pid: u32,
    /// Path of its program, as far as it can be told.
    pub program: String,
    /// Version of the library in it.
    pub version: String,
    /// Virtual processors; 0 where no runtime runs at that moment.
    pub vps: u16,
    /// Living microprocesses.
    pub living: u64,
    /// Queue design, policy, event source, locking design.
    pub queue: String,
    /// See `queue`.
    pub policy: String,
    /// See `queue`.
    pub events: String,
    /// See `queue`.
    pub locking: String,
    /// What microprocesses are there: `microprocesses`, or `kernel-threads` (1:1). Empty: an older
    /// version, which does not tell.
    #[serde(default)]
    pub mode: String,
    /// Why kernel threads stand in for microprocesses, if they do.
    #[serde(default)]
    pub why: Option<String>,
    /// Kernel threads of its runtime, and the limit on them. 0: unknown.
    #[serde(default)]
    pub kernel_threads: u32,
    /// See `kernel_threads`.
    #[serde(default)]
    pub most_kernel_threads: u32,
}

/// What a microprocess is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It runs on a virtual processor.
    Running,
    /// It is queued for one.
    Runnable,
    /// It waits: see [`Microprocess::waits_for`].
    Waiting,
    /// It sleeps in the kernel, and its virtual processor has gone on without it.
    Blocked,
    /// It was suspended, and has stopped.
    Suspended,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            State::Running => "running",
            State::Runnable => "runnable",
            State::Waiting => "waiting",
            State::Blocked => "blocked",
            State::Suspended => "suspended",
        })
    }
}

/// A microprocess at the moment at which it was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Microprocess {
    /// Its id.
    pub id: Id,
    /// As its builder was told; not unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is doing.
    pub state: State,
    /// It was asked to stop, and will where it can (it is blocked in the kernel, say).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
    /// What it waits for, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Its own priority, 0 to 63.
    pub priority: u8,
    /// A higher one that was lent to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<u8>,
    /// The virtual processor on which it runs, or ran last.
    pub vp: u16,
    /// The kernel thread to which it is bound: it runs or is blocked there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_thread: Option<i32>,
    /// It keeps that kernel thread and has no virtual processor: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<String>,
}

/// A row of the usage table (P3, figures 5 and 6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Kind and serial.
    pub id: Id,
    /// Its user, if there is one: a microprocess, a virtual processor, an address space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Id>,
    /// What it is doing, in the words of its kind.
    pub state: String,
    /// Its names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// What can be done to a microprocess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It runs no further until it is resumed.
    Suspend,
    /// It may run again.
    Resume,
    /// As `Thread::cancel`.
    Cancel,
    /// As `Thread::set_priority`, 0 to 63.
    Priority(u8),
}

/// What became of an [`Action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Done {
    /// It is so.
    Now,
    /// It was so already: suspended, or not suspended.
    Already,
    /// It will be so when the microprocess comes back from the kernel, where it sleeps.
    OnReturn,
    /// Asked for; the microprocess has not come to where it can stop (it is in the C library, say,
    /// or its virtual processor has not taken a step yet).
    Asked,
}

/// Why it was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "message")]
#[non_exhaustive]
pub enum Refused {
    /// The id's resource has ended, or never was.
    Stale(String),
    /// The id is of another kind, or of another address space.
    Wrong(String),
    /// That cannot be done in this address space (microprocesses are kernel threads there, say).
    Unsupported(String),
    /// The caller may not.
    Denied(String),
    /// Too many ask at once.
    Busy(String),
    /// The request means nothing.
    Invalid(String),
    /// Something failed on the way.
    Failed(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Refused::Stale(text)
        | Refused::Wrong(text)
        | Refused::Unsupported(text)
        | Refused::Denied(text)
        | Refused::Busy(text)
        | Refused::Invalid(text)
        | Refused::Failed(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for Refused {}

/// A number that is counted or measured, as Prometheus knows them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// `kumihimo_...`, with its unit.
    pub name: String,
    /// What it is, in one line.
    pub help: String,
    /// It only grows.
    pub counter: bool,
    /// Labels and value.
    pub samples: Vec<(Vec<(String, String)>, f64)>,
}

/// The answering side of an address space. Called on the kernel thread that serves the control
/// socket: it may take locks and wait for a bounded time, and nothing that it does stops the
/// microprocesses that it looks at, unless that is what was asked for.
pub trait ControlHandler: Send + Sync {
    /// The calling kernel thread receives notifications from now on: each
    /// [`notify`](crate::space::Number::notify) with this number leads to
    /// [`on_notification`](ControlHandler::on_notification).
    fn on_listening(&self, number: u16) {
        let _ = number;
    }

    /// Another address space notified this one that something on the board concerns it. `from` is
    /// the core that the sender runs on, a hint. May be spurious.
    fn on_notification(&self, from: u32) {
        let _ = from;
    }

    /// The address space itself.
    fn space(&self) -> Space;

    /// Every living microprocess, each as it is when it is looked at.
    fn microprocesses(&self, each: &mut dyn FnMut(Microprocess));

    /// One of them.
    ///
    /// # Errors
    /// [`Refused::Stale`], [`Refused::Wrong`].
    fn microprocess(&self, id: Id) -> Result<Microprocess, Refused>;

    /// The usage table, of one kind or of all.
    fn resources(&self, kind: Option<Kind>, each: &mut dyn FnMut(Resource));

    /// Does it, and waits up to about a second until it is done.
    ///
    /// # Errors
    /// Any [`Refused`].
    fn act(&self, id: Id, action: Action) -> Result<Done, Refused>;

    /// Where a microprocess is in its program, as text, a line a frame.
    ///
    /// # Errors
    /// Any [`Refused`].
    fn backtrace(&self, id: Id) -> Result<String, Refused>;

    /// All that is counted.
    fn metrics(&self) -> Vec<Metric>;

    /// The trace so far, in Perfetto's format.
    ///
    /// # Errors
    /// `Unsupported`: nothing is traced there. What `out` says.
    fn trace(&self, out: &mut dyn io::Write) -> io::Result<()>;
}
