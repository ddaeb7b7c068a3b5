//! The table of variables.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::lab::{Lab, store};
use crate::values::size::bytes;
use crate::values::{
    Arbiter, DUMP_SIGNALS, Events, MAX_KERNEL_THREADS, MAX_STACK, MAX_VPS, MachineDir, Preempt,
    Share, Watchdog, dump_signal, number,
};

/// Settings of a process. `None` means the default, which the crate concerned chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// `KUMI_VPS`: number of virtual processors.
    pub vps: Option<usize>,
    /// `KUMI_EVENTS`: the source of events.
    pub events: Option<Events>,
    /// `KUMI_PREEMPT`: how a kernel thread is interrupted.
    pub preempt: Option<Preempt>,
    /// `KUMI_KERNEL_THREADS`: maximum number of kernel threads of a runtime.
    pub kernel_threads: Option<usize>,
    /// `KUMI_STACK`: usable stack of a microprocess, in bytes.
    pub stack: Option<usize>,
    /// `RUST_MIN_STACK`: the same in std's own variable, which applies without `KUMI_STACK`.
    pub rust_min_stack: Option<usize>,
    /// `KUMI_TRACE`: file to which a trace is written.
    pub trace: Option<PathBuf>,
    /// `KUMI_DIR`: the run-time directory.
    pub dir: MachineDir,
    /// `KUMI_ARBITER`: how cores are shared with other address spaces.
    pub arbiter: Arbiter,
    /// `KUMI_SHARE`: bound on CPU time.
    pub share: Option<Share>,
    /// `KUMI_WATCHDOG`: the reaction to a user scheduler that violates the event protocol.
    pub watchdog: Option<Watchdog>,
    /// `KUMI_DUMP_SIGNAL`: number of the signal that requests a dump.
    pub dump_signal: Option<i32>,
    /// `KUMI_LAB`: settings for tests and experiments.
    pub lab: Lab,
}

/// Environment variable with a setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The values that are allowed.
    pub allowed: &'static str,
    /// The default, in words.
    pub default: &'static str,
    /// Effect of the setting.
    pub effect: &'static str,
    pub(crate) read: fn(&mut Config, &OsStr) -> bool,
}

/// Name of the variable whose value [`crate::lab`] parses.
pub(crate) const LAB: &str = "KUMI_LAB";

/// Name of the variable of the stack size.
pub(crate) const STACK: &str = "KUMI_STACK";

/// Name of std's variable of the default stack size.
const RUST_MIN_STACK: &str = "RUST_MIN_STACK";

/// Parses `RUST_MIN_STACK` as std does: a number of bytes, and any other value counts as unset.
pub(crate) fn rust_min_stack(lookup: impl Fn(&str) -> Option<OsString>) -> Option<usize> {
    lookup(RUST_MIN_STACK)?.to_str()?.parse().ok()
}

/// All accepted variables.
pub const VARIABLES: [Setting; 12] = [
    Setting {
        name: "KUMI_VPS",
        allowed: "a number of virtual processors, 1 to 1024",
        default: "the cores that the affinity and the CPU quota allow",
        effect: "number of virtual processors (Builder::vps takes precedence)",
        read: |config, value| store(&mut config.vps, number(text(value), 1..=MAX_VPS)),
    },
    Setting {
        name: "KUMI_EVENTS",
        allowed: "bpf, perf, watch or off",
        default: "the first of bpf, perf, watch that the machine allows",
        effect: "source of events (Builder::events takes precedence)",
        read: |config, value| store(&mut config.events, Events::parse(text(value))),
    },
    Setting {
        name: "KUMI_PREEMPT",
        allowed: Preempt::ALLOWED,
        default: "clock where perf allows it, else signal; off under a debugger",
        effect: "how a computing microprocess is interrupted (Builder::preemption takes precedence)",
        read: |config, value| store(&mut config.preempt, Preempt::parse(text(value))),
    },
    Setting {
        name: "KUMI_KERNEL_THREADS",
        allowed: "a number of kernel threads, 1 to 1048576",
        default: "what the machine allows, at most 10000",
        effect: "most kernel threads of a runtime (Builder::max_kernel_threads takes precedence)",
        read: |config, value| {
            store(&mut config.kernel_threads, number(text(value), 1..=MAX_KERNEL_THREADS))
        },
    },
    Setting {
        name: STACK,
        allowed: "a size in bytes, 1 to 1g (units k, m, g)",
        default: "160k",
        effect: "usable stack of a microprocess, before RUST_MIN_STACK \
                 (Builder::stack_size takes precedence)",
        read: |config, value| {
            let size = bytes(text(value)).filter(|size| (1..=MAX_STACK).contains(size));
            store(&mut config.stack, size)
        },
    },
    Setting {
        name: "KUMI_TRACE",
        allowed: "the path of a file",
        default: "no trace",
        effect: "file of the trace, %p stands for the process id (Builder::trace takes precedence)",
        read: |config, value| store(&mut config.trace, Some(PathBuf::from(value))),
    },
    Setting {
        name: "KUMI_DIR",
        allowed: "an absolute path, or off",
        default: "the directory of the user's session, else one in /dev/shm or /tmp",
        effect: "run-time directory in which address spaces find each other (off: none)",
        read: |config, value| {
            config.dir = match value.to_str() {
                Some("off") => MachineDir::Off,
                _ if !Path::new(value).is_absolute() => return false,
                _ => MachineDir::At(value.into()),
            };
            true
        },
    },
    Setting {
        name: "KUMI_ARBITER",
        allowed: "on, off, none, or the absolute path of a board",
        default: "on",
        effect: "cores are shared by priority with the address spaces at the board (off: by the \
                 kernel; none: at no board; a path: at that board)",
        read: |config, value| {
            config.arbiter = match value.to_str() {
                Some("on") => Arbiter::On,
                Some("off") => Arbiter::Off,
                Some("none") => Arbiter::NoBoard,
                _ if !Path::new(value).is_absolute() => return false,
                _ => Arbiter::BoardAt(value.into()),
            };
            true
        },
    },
    Setting {
        name: "KUMI_SHARE",
        allowed: Share::ALLOWED,
        default: "no bound",
        effect: "bound on the CPU time of the address space (Builder::share takes precedence)",
        read: |config, value| store(&mut config.share, Share::parse(text(value))),
    },
    Setting {
        name: "KUMI_WATCHDOG",
        allowed: Watchdog::ALLOWED,
        default: "override=1000",
        effect: "reaction to a scheduler, policy or guard that stops a VP \
                 (Builder::on_misbehaviour takes precedence)",
        read: |config, value| store(&mut config.watchdog, Watchdog::parse(text(value))),
    },
    Setting {
        name: "KUMI_DUMP_SIGNAL",
        allowed: DUMP_SIGNALS,
        default: "none",
        effect: "signal that requests a dump (Builder::dump_signal takes precedence)",
        read: |config, value| store(&mut config.dump_signal, dump_signal(text(value))),
    },
    Setting {
        name: LAB,
        allowed: "key=value pairs separated by commas, in UTF-8",
        default: "no pairs",
        effect: "settings for tests and experiments, see below",
        // The pairs are parsed separately, so that each has its own error.
        read: |_, value| value.to_str().is_some(),
    },
];

/// Returns a value as text. A value that is not UTF-8 becomes empty, which no grammar accepts.
fn text(value: &OsStr) -> &str {
    value.to_str().unwrap_or_default()
}

/// Origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The variable is not set.
    Default,
    /// The variable.
    Environment,
    /// A pair of `KUMI_LAB`.
    Lab,
    /// std's variable of the same meaning, `RUST_MIN_STACK`.
    Std,
    /// The default, because the variable's value is invalid.
    Refused,
    /// The default, because a set-id program ignores the environment.
    Privileged,
}

/// Setting of this process, in readable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The variable, or `lab KEY`.
    pub name: String,
    /// The value, or the default in words.
    pub value: String,
    /// Origin of the value.
    pub origin: Origin,
    /// Effect of the setting.
    pub effect: &'static str,
}
