//! The limit on kernel threads of a process, and the setting of the machine that imposes it.
//!
//! Sources: getrlimit(2), Documentation/admin-guide/cgroup-v2.rst (pids).

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit, getuid};

use super::control_group::{ControlGroups, number};

/// Returns the limit on descriptors of the process (RLIMIT_NOFILE).
#[must_use]
pub fn descriptors() -> usize {
    let most = getrlimit(Resource::Nofile).current;
    most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}

/// The largest default. Beyond it a kernel thread (kernel stack, scheduler entity) costs more than
/// the wait that it serves is worth. Go's runtime has the same limit
/// (`runtime/debug.SetMaxThreads`).
const MOST: u64 = 10_000;
/// The descriptor limit never lowers the default below this, since a sticky kernel thread owns no
/// descriptor.
const LEAST_FOR_DESCRIPTORS: u64 = 4_096;

/// A limit on kernel threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The maximum number of kernel threads, including those that carry VPs.
    pub threads: usize,
    /// The source of the limit.
    pub source: LimitSource,
}

/// The source of a [`Limit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The program or its user, by the setting of this name.
    Asked(&'static str),
    /// No limit of the machine is lower than the built-in default.
    Nothing,
    /// The process's limit of descriptors. Half of them are reserved for the program.
    Descriptors(u64),
    /// The user's limit of processes and threads.
    Processes(u64),
    /// A control group.
    Group {
        /// The group's directory.
        path: PathBuf,
        /// The group's `pids.max`.
        most: u64,
        /// The group's `pids.current`.
        has: u64,
    },
    /// The kernel's setting `threads-max`.
    Machine(u64),
}

impl Limit {
    /// Creates a limit that was requested by the setting `name`.
    #[must_use]
    pub fn asked(threads: usize, name: &'static str) -> Limit {
        Limit { threads, source: LimitSource::Asked(name) }
    }

    /// Returns the limit that this machine imposes on this process now. A file that cannot be read
    /// imposes no limit. Blocks the kernel thread while it reads small files of /proc and of the
    /// control groups.
    #[must_use]
    pub fn of_machine() -> Limit {
        let least = machine().into_iter().min_by_key(|(threads, _)| *threads);
        let (threads, source) =
            least.filter(|(threads, _)| *threads < MOST).unwrap_or((MOST, LimitSource::Nothing));
        Limit { threads: threads.max(1) as usize, source }
    }
}

/// Returns the limit that probably caused a failed thread creation, in words. Empty if none is
/// known.
#[must_use]
pub(crate) fn likely_cause() -> String {
    let full = machine().into_iter().find(|(_, source)| match source {
        LimitSource::Group { most, has, .. } => has >= most,
        LimitSource::Processes(_) => true,
        _ => false,
    });
    full.map_or_else(String::new, |(_, source)| source.to_string())
}

/// Returns every limit of the machine, each with the number of threads that it allows.
fn machine() -> Vec<(u64, LimitSource)> {
    let mut all = Vec::new();
    if let Some(most) = getrlimit(Resource::Nofile).current {
        all.push(((most / 2).max(LEAST_FOR_DESCRIPTORS), LimitSource::Descriptors(most)));
    }
    // The kernel does not apply RLIMIT_NPROC to root (kernel/fork.c, copy_process).
    if let Some(most) = getrlimit(Resource::Nproc).current.filter(|_| !getuid().is_root()) {
        all.push((most, LimitSource::Processes(most)));
    }
    for path in ControlGroups::of_process().directories("pids") {
        if let (Some(most), Some(has)) = (number(&path, "pids.max"), number(&path, "pids.current"))
        {
            all.push((most.saturating_sub(has), LimitSource::Group { path, most, has }));
        }
    }
    if let Some(most) = number(Path::new("/proc/sys/kernel"), "threads-max") {
        all.push((most, LimitSource::Machine(most)));
    }
    all
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kernel threads ({})", self.threads, self.source)
    }
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitSource::Asked(name) => f.write_str(name),
            LimitSource::Nothing => f.write_str("KUMI_KERNEL_THREADS allows more"),
            LimitSource::Descriptors(most) => {
                write!(f, "half of the {most} descriptors; ulimit -n allows more")
            }
            LimitSource::Processes(most) => {
                write!(f, "the {most} processes and threads of this user; ulimit -u allows more")
            }
            LimitSource::Group { path, most, has } => {
                write!(f, "pids.max of {}: {most}, of which {has} are in use", path.display())
            }
            LimitSource::Machine(most) => write!(f, "/proc/sys/kernel/threads-max: {most}"),
        }
    }
}

#[cfg(test)]
mod tests;
