//! Records of recent overrides. They stay on the board after the end of the process, so that it can
//! still be identified.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::name::Name;

/// Reason for which waiters override an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The holder's process is dead.
    Dead,
    /// The holder's kernel thread was stopped (SIGSTOP, a debugger).
    Stopped,
    /// The holder's kernel thread slept in the kernel.
    Asleep,
    /// The holder did not acknowledge a request, or did not leave the core, within the bound.
    Unresponsive,
    /// The process wrote to the reserved part of the board.
    Corrupted,
}

impl Reason {
    pub(crate) fn code(self) -> u32 {
        self as u32 + 1
    }

    pub(crate) fn decoded(code: u32) -> Option<Reason> {
        [Reason::Dead, Reason::Stopped, Reason::Asleep, Reason::Unresponsive]
            .into_iter()
            .find(|reason| reason.code() == code)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Reason::Dead => "ended while it held a core",
            Reason::Stopped => "is stopped, and held a core",
            Reason::Asleep => "slept in the kernel, and held a core",
            Reason::Unresponsive => "did not answer, or did not leave its core",
            Reason::Corrupted => "writes to a reserved part of the board",
        })
    }
}

/// Number of records; new records replace the oldest.
pub(crate) const MAX_OVERRIDES: usize = 16;

/// Record of the overrides of one process for one reason. All zeroes mean an empty record.
#[repr(C, align(64))]
pub(crate) struct OverrideRecord {
    name: Name,
    pid: AtomicU32,
    reason: AtomicU32,
    times: AtomicU32,
    /// Time of the last override, CLOCK_MONOTONIC in nanoseconds.
    at: AtomicU64,
}

/// Process that violated the protocol of the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offender {
    /// Its pid, in the pid namespace of the overriding process.
    pub pid: u32,
    /// Its name, without control characters.
    pub name: String,
    /// Kind of the violation.
    pub reason: Reason,
    /// Number of overrides.
    pub times: u32,
    /// Time since the last override.
    pub ago: Duration,
}

/// Counts an override in the record of the same process and reason, or replaces the oldest record.
/// Of two concurrent calls one may be lost.
pub(crate) fn note(
    kept: &[OverrideRecord; MAX_OVERRIDES],
    name: &str,
    pid: u32,
    reason: Reason,
    now: u64,
) {
    let is_same = |one: &&OverrideRecord| {
        one.pid.load(Ordering::Relaxed) == pid
            && one.reason.load(Ordering::Relaxed) == reason.code()
    };
    if let Some(same) = kept.iter().find(is_same) {
        same.times.fetch_add(1, Ordering::Relaxed);
        return same.at.store(now, Ordering::Relaxed);
    }
    let oldest = kept.iter().min_by_key(|one| one.at.load(Ordering::Relaxed));
    let one = oldest.expect("some are kept");
    one.name.set(name);
    one.pid.store(pid, Ordering::Relaxed);
    one.reason.store(reason.code(), Ordering::Relaxed);
    one.times.store(1, Ordering::Relaxed);
    one.at.store(now, Ordering::Relaxed);
}

/// Returns all valid records, latest first.
pub(crate) fn all(kept: &[OverrideRecord; MAX_OVERRIDES], now: u64) -> Vec<Offender> {
    let seen = |one: &OverrideRecord| {
        Some(Offender {
            pid: one.pid.load(Ordering::Relaxed),
            name: one.name.get(),
            reason: Reason::decoded(one.reason.load(Ordering::Relaxed))?,
            times: one.times.load(Ordering::Relaxed),
            ago: Duration::from_nanos(now.saturating_sub(one.at.load(Ordering::Relaxed))),
        })
    };
    let mut all: Vec<Offender> = kept.iter().filter_map(seen).collect();
    all.sort_by_key(|one| one.ago);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_overrides_are_kept_and_counted() {
        // SAFETY: all zero is valid for atomic words.
        let kept: [OverrideRecord; MAX_OVERRIDES] = unsafe { std::mem::zeroed() };
        assert_eq!(all(&kept, 40), []);
        for pid in 1..=20 {
            note(&kept, &format!("program-{pid}"), pid, Reason::Stopped, u64::from(pid));
        }
        note(&kept, "program-7", 7, Reason::Stopped, 30);
        note(&kept, "program-7", 7, Reason::Dead, 31);
        let seen = all(&kept, 40);
        assert_eq!(seen.len(), MAX_OVERRIDES);
        let latest: Vec<_> =
            seen.iter().take(3).map(|one| (one.pid, one.reason, one.times)).collect();
        assert_eq!(
            latest,
            [(7, Reason::Dead, 1), (7, Reason::Stopped, 2), (20, Reason::Stopped, 1)]
        );
        assert_eq!((seen[0].name.as_str(), seen[0].ago), ("program-7", Duration::from_nanos(9)));
        // The records of 1 to 4 were replaced first, and that of 5 by the second reason of 7.
        assert!(seen.iter().all(|one| one.pid > 5));
        // An invalid record is not returned.
        kept[3].reason.store(77, Ordering::Relaxed);
        assert_eq!(all(&kept, 40).len(), MAX_OVERRIDES - 1);
    }
}
