//! The kinds of event sources, and their names.

use std::fmt;

/// The kinds of event sources, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A BPF program at every context switch, and SIGTRAP on the way back.
    Bpf,
    /// perf's records of context switches: without privileges.
    Perf,
    /// A look at each virtual processor's kernel thread, now and then: where nothing is allowed.
    Watch,
    /// None: only what says so itself (`blocking`, our own I/O) gives its virtual processor away.
    Off,
}

impl Kind {
    /// All, best first.
    pub const ALL: [Kind; 4] = [Kind::Bpf, Kind::Perf, Kind::Watch, Kind::Off];

    /// As `KUMI_EVENTS` names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Bpf => "bpf",
            Kind::Perf => "perf",
            Kind::Watch => "watch",
            Kind::Off => "off",
        }
    }

    /// The reverse of [`name`](Kind::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// As `KUMI_EVENTS` asks.
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
