//! Configuration of the watchdog: the violations that it detects, and its response.

use std::fmt;
use std::time::Duration;

/// A violation of the event protocol by the user scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The kernel thread keeps running masked.
    MaskNeverCleared,
    /// [`UserScheduler::blocked`](crate::sched::UserScheduler::blocked) does not return.
    BlockedNeverAnswered,
    /// A microprocess that was to be preempted keeps running.
    NoYield,
    /// The kernel thread sleeps in the kernel, masked.
    SchedulerBlocked,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Violation::MaskNeverCleared => "mask never cleared",
            Violation::BlockedNeverAnswered => "Blocked never answered",
            Violation::NoYield => "no yield after Preempted",
            Violation::SchedulerBlocked => "user scheduler itself blocked",
        })
    }
}

/// The response to a violation. Each one includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum OnMisbehaviour {
    /// No check.
    Ignore,
    /// A report on standard error, with the kernel thread's stack.
    Report,
    /// A report, and measures that let the other VPs continue: see [`crate::watchdog`].
    #[default]
    Override,
    /// A report, and the process aborts.
    End,
}

/// The bound and the response of the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distrust {
    /// The response.
    pub on: OnMisbehaviour,
    /// The time after which a violation is reported: see [`crate::watchdog`] for the time that
    /// counts. Clamped to the range from 100 ms to an hour. Short bounds are for tests.
    pub bound: Duration,
}

impl Default for Distrust {
    /// Overrides after a second. That is longer than any step of a scheduler takes, even with a
    /// page fault on a slow disk.
    fn default() -> Distrust {
        Distrust { on: OnMisbehaviour::default(), bound: Duration::from_secs(1) }
    }
}

impl Distrust {
    pub(super) const LEAST: u64 = 100;
    pub(super) const MOST: u64 = 3_600_000;

    /// Parses `off`, `report`, `override` or `end`, optionally with a bound in milliseconds:
    /// `report=200`.
    ///
    /// # Errors
    /// The text and the allowed values, if `text` is none of these.
    pub fn from_name(text: &str) -> Result<Distrust, String> {
        let asked = kumihimo_config::Watchdog::parse(text).map(Distrust::from);
        asked.ok_or_else(|| format!("{text:?}: expected {}", kumihimo_config::Watchdog::ALLOWED))
    }
}

/// Converts the value of `KUMI_WATCHDOG`.
impl From<kumihimo_config::Watchdog> for Distrust {
    fn from(asked: kumihimo_config::Watchdog) -> Distrust {
        let on = match asked.on {
            kumihimo_config::OnMisbehaviour::Ignore => OnMisbehaviour::Ignore,
            kumihimo_config::OnMisbehaviour::Report => OnMisbehaviour::Report,
            kumihimo_config::OnMisbehaviour::Override => OnMisbehaviour::Override,
            kumihimo_config::OnMisbehaviour::End => OnMisbehaviour::End,
        };
        Distrust { on, bound: asked.bound.unwrap_or(Distrust::default().bound) }
    }
}

#[cfg(test)]
mod tests;
