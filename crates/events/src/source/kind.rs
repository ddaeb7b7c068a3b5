//! The kinds of event sources, and their names.

use std::fmt;

/// The kinds of event sources, best first.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{Events, Runtime, metrics};
///
/// let runtime = Runtime::builder().events(Events::Watch).build()?;
/// assert_eq!(runtime.run(|| metrics().unwrap().events), "watch");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A BPF program that runs at every context switch, and SIGTRAP on the way back.
    Bpf,
    /// perf's records of context switches, without privileges.
    Perf,
    /// Periodic looks at each virtual processor's kernel thread, for machines that allow nothing
    /// else.
    Watch,
    /// None: only `blocking` and the runtime's own I/O give a virtual processor away.
    Off,
}

impl Kind {
    /// All kinds, best first.
    pub const ALL: [Kind; 4] = [Kind::Bpf, Kind::Perf, Kind::Watch, Kind::Off];

    /// Returns the name of the kind in `KUMI_EVENTS`.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Events;
    ///
    /// let names = Events::ALL.map(Events::name);
    /// assert_eq!(names, ["bpf", "perf", "watch", "off"]);
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Bpf => "bpf",
            Kind::Perf => "perf",
            Kind::Watch => "watch",
            Kind::Off => "off",
        }
    }

    /// Returns the kind of this [`name`](Kind::name).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Events;
    ///
    /// assert_eq!(Events::from_name("perf"), Some(Events::Perf));
    /// assert_eq!(Events::from_name("ptrace"), None);
    /// ```
    #[must_use]
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Converts the value of `KUMI_EVENTS`.
impl From<kumihimo_config::Events> for Kind {
    fn from(asked: kumihimo_config::Events) -> Kind {
        match asked {
            kumihimo_config::Events::Bpf => Kind::Bpf,
            kumihimo_config::Events::Perf => Kind::Perf,
            kumihimo_config::Events::Watch => Kind::Watch,
            kumihimo_config::Events::Off => Kind::Off,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
