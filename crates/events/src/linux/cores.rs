//! The cores that the process may use: those of its CPU affinity, less what the CPU quotas of its
//! control groups take away.
//!
//! As `std::thread::available_parallelism`, except that a part of a core counts as a core, because
//! a program that may use 1.5 cores computes on two at times.
//!
//! Sources: sched_setaffinity(2), Documentation/admin-guide/cgroup-v2.rst (cpu.max),
//! Documentation/scheduler/sched-bwc.rst (cpu.cfs_quota_us).

use std::cmp::Ordering;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::control_group::{ControlGroups, number};

/// The cores that a process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Number of cores in the CPU affinity.
    pub affinity: usize,
    /// The smallest CPU quota of the process's control groups.
    pub quota: Option<Quota>,
}

/// The CPU quota of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The group's directory.
    pub group: PathBuf,
    /// CPU time of all threads of the group in each period, in microseconds.
    pub quota: u64,
    /// The period in microseconds, greater than zero.
    pub period: u64,
}

impl Cores {
    /// Returns what applies to the calling kernel thread now. A file that cannot be read imposes no
    /// quota. Blocks the kernel thread while it reads small files of /proc and of the control
    /// groups.
    #[must_use]
    pub fn of_process() -> Cores {
        let groups = ControlGroups::of_process().directories("cpu");
        Cores { affinity: affinity().len().max(1), quota: smallest(&groups) }
    }

    /// Returns the number of cores. At least one, and at most those of the affinity.
    #[must_use]
    pub fn count(&self) -> usize {
        let quota = self.quota.as_ref().map_or(usize::MAX, Quota::cores);
        self.affinity.min(quota).max(1)
    }
}

/// Observes the cores that the process may use. The groups are those at the time of its creation;
/// their quotas, and the affinity, are read at each look.
#[derive(Debug)]
pub struct Watch {
    groups: Vec<PathBuf>,
}

impl Watch {
    /// Finds the control groups of the process. Blocks the kernel thread, as
    /// [`Cores::of_process`] does.
    #[must_use]
    pub fn new() -> Watch {
        let is_there = |group: &PathBuf| CONTROLS.iter().any(|name| group.join(name).exists());
        let groups = ControlGroups::of_process().directories("cpu");
        Watch { groups: groups.into_iter().filter(is_there).collect() }
    }

    /// Returns what applies to the calling kernel thread now. Reads one or two small files of each
    /// group.
    #[must_use]
    pub fn look(&self) -> Cores {
        Cores { affinity: affinity().len().max(1), quota: smallest(&self.groups) }
    }
}

impl Default for Watch {
    fn default() -> Watch {
        Watch::new()
    }
}

/// The files of a group that have its quota, in version 2 and in version 1.
const CONTROLS: [&str; 2] = ["cpu.max", "cpu.cfs_quota_us"];

impl Quota {
    /// Returns the quota of `group`, if it has one.
    fn of(group: &Path) -> Option<Quota> {
        let (quota, period) = match fs::read_to_string(group.join("cpu.max")) {
            Ok(text) => {
                let mut words = text.split_whitespace().map(str::parse);
                (words.next()?.ok()?, words.next()?.ok()?)
            }
            Err(_) => (number(group, "cpu.cfs_quota_us")?, number(group, "cpu.cfs_period_us")?),
        };
        (period > 0).then(|| Quota { group: group.to_owned(), quota, period })
    }

    /// Returns the number of cores that the quota keeps busy, rounded up. At least one.
    #[must_use]
    pub fn cores(&self) -> usize {
        usize::try_from(self.quota.div_ceil(self.period)).unwrap_or(usize::MAX).max(1)
    }

    /// Compares the shares of a core.
    fn by_share(&self, other: &Quota) -> Ordering {
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        product(self.quota, other.period).cmp(&product(other.quota, self.period))
    }
}

/// Returns the smallest quota of the groups.
fn smallest(groups: &[PathBuf]) -> Option<Quota> {
    groups.iter().filter_map(|group| Quota::of(group)).min_by(Quota::by_share)
}

/// Returns the cores in the CPU affinity of the calling kernel thread, in ascending order. Empty if
/// the kernel refuses to report them.
#[must_use]
pub fn affinity() -> Vec<u32> {
    // The kernel refuses a set that is too small for the machine's cores.
    let mut words = vec![0u64; libc::CPU_SETSIZE as usize / 64];
    loop {
        // SAFETY: the set has as many bytes as the call is told.
        let done = unsafe {
            libc::sched_getaffinity(0, size_of_val(words.as_slice()), words.as_mut_ptr().cast())
        };
        if done == 0 {
            break;
        }
        let is_too_small = std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
        if !is_too_small || words.len() >= 1 << 14 {
            return Vec::new();
        }
        words = vec![0; words.len() * 2];
    }
    let is_in = |core: &u32| words[*core as usize / 64] & 1 << (*core % 64) != 0;
    (0..words.len() as u32 * 64).filter(is_in).collect()
}

/// Returns the number of online cores of the machine, at least one.
#[must_use]
pub fn online() -> usize {
    let listed = fs::read_to_string("/sys/devices/system/cpu/online");
    listed.ok().and_then(|list| count_listed(list.trim())).unwrap_or_else(|| {
        // SAFETY: integers only.
        let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        usize::try_from(count).unwrap_or(1).max(1)
    })
}

/// Returns the number of cores in a list such as `0-3,8`. `None` if it is no such list.
fn count_listed(list: &str) -> Option<usize> {
    list.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            Some(last.checked_sub(first)? + 1)
        })
        .sum()
}

impl fmt::Display for Cores {
    /// Names the number and its origin.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, from the ", self.count())?;
        match &self.quota {
            Some(quota) if quota.cores() < self.affinity => {
                write!(f, "{quota}; the CPU affinity allows {}", cores(self.affinity))
            }
            Some(quota) => {
                write!(f, "CPU affinity: {}; the {quota} allows them", cores(self.affinity))
            }
            None => write!(f, "CPU affinity: {}, no CPU quota", cores(self.affinity)),
        }
    }
}

fn cores(count: usize) -> String {
    format!("{count} core{}", if count == 1 { "" } else { "s" })
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quota { group, quota, period } = self;
        let share = *quota as f64 / *period as f64;
        let group = group.display();
        write!(f, "CPU quota of {group} ({quota} us in each {period} us, {share:.2} cores)")
    }
}

#[cfg(test)]
mod tests;
