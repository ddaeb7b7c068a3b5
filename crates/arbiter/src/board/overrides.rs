//! Recently overridden address spaces: kept on the board beyond their end, so that they can be
//! named when they are gone.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::name::Name;

/// What an address space did that others do not wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its process is dead.
    Dead,
    /// It was stopped (SIGSTOP, a debugger).
    Stopped,
    /// It slept in the kernel.
    Asleep,
    /// It did not answer, or did not leave, within the bound.
    Unresponsive,
    /// It wrote over the board where nobody has any business.
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
            Reason::Corrupted => "writes nonsense over the board",
        })
    }
}

/// So many are kept, the latest.
pub(crate) const MAX_OVERRIDES: usize = 16;

/// Of one process, for one reason. All zero: none.
#[repr(C, align(64))]
pub(crate) struct OverrideRecord {
    name: Name,
    pid: AtomicU32,
    reason: AtomicU32,
    times: AtomicU32,
    /// The last time, CLOCK_MONOTONIC, nanoseconds.
    at: AtomicU64,
}

/// A process that did not do its part at the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offender {
    /// Its process, as the overriding ones saw it.
    pub pid: u32,
    /// Its name; without control characters.
    pub name: String,
    /// What it did.
    pub reason: Reason,
    /// How often.
    pub times: u32,
    /// For how long it has not done so again.
    pub ago: Duration,
}

/// Notes it once more, or in the place of the oldest one. Two that note at the same time can lose
/// one.
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

/// The latest first. What stands there and makes no sense is left out.
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
    fn the_latest_are_kept_and_the_same_one_is_counted() {
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
        let said: Vec<_> =
            seen.iter().take(3).map(|one| (one.pid, one.reason, one.times)).collect();
        assert_eq!(said, [(7, Reason::Dead, 1), (7, Reason::Stopped, 2), (20, Reason::Stopped, 1)]);
        assert_eq!((seen[0].name.as_str(), seen[0].ago), ("program-7", Duration::from_nanos(9)));
        // 1 to 4, and 5 for the second of 7.
        assert!(seen.iter().all(|one| one.pid > 5));
        // Nonsense is not shown, and does not stay for ever.
        kept[3].reason.store(77, Ordering::Relaxed);
        assert_eq!(all(&kept, 40).len(), MAX_OVERRIDES - 1);
    }
}
