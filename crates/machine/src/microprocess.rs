//! Description of a microprocess, as the control socket sends it.

use std::fmt;

use kumihimo_resource::id::Id;
use serde::{Deserialize, Serialize};

use crate::locks::Holder;

/// State of a microprocess.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::machine::{self, Machine, State};
/// use kumihimo::thread;
///
/// let worker = thread::spawn(thread::park);
/// let id = worker.thread().id().resource().expect("it is a microprocess");
/// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
/// while space.microprocess(id)?.state != State::Waiting {
///     thread::yield_now();
/// }
/// assert_eq!(State::Waiting.to_string(), "waiting");
/// worker.thread().unpark();
/// worker.join().unwrap();
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The microprocess runs on a virtual processor.
    Running,
    /// The microprocess is queued for a virtual processor.
    Runnable,
    /// The microprocess waits; see [`Microprocess::waits_for`].
    Waiting,
    /// The microprocess sleeps in the kernel; its virtual processor runs other microprocesses.
    Blocked,
    /// The microprocess is suspended and has stopped.
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

/// Description of a microprocess at the time of the request.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::machine::{self, Machine, Microprocess};
/// use kumihimo::thread;
///
/// let worker = thread::Builder::new().name("worker".to_owned()).spawn(thread::park)?;
/// let id = worker.thread().id().resource().expect("it is a microprocess");
/// let mut space = Machine::mine()?.neighbour(machine::number()?)?;
/// let Microprocess { name, priority, .. } = space.microprocess(id)?;
/// assert_eq!(name.as_deref(), Some("worker"));
/// assert_eq!(priority, worker.thread().priority().get());
/// worker.thread().unpark();
/// worker.join().unwrap();
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Microprocess {
    /// ID of the microprocess.
    pub id: Id,
    /// Name of the microprocess, as set in its builder; not unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// State of the microprocess.
    pub state: State,
    /// A suspension was requested, and takes effect where that is possible (for example, after it
    /// leaves the kernel).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
    /// The object that the microprocess waits for, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The holder of the lock that the microprocess waits for, if it waits for a lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// The microprocess's own priority, 0 to 63.
    pub priority: u8,
    /// A higher priority that the microprocess inherits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited: Option<u8>,
    /// The virtual processor on which the microprocess runs, or ran last.
    pub vp: u16,
    /// The kernel thread on which the microprocess runs or is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_thread: Option<i32>,
    /// Why the microprocess keeps that kernel thread without a virtual processor, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<String>,
}
