//! What a user scheduler is distrusted for, and what is done about it.

use std::fmt;
use std::time::Duration;

/// What a user scheduler did not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Its kernel thread runs and runs, masked.
    MaskNeverCleared,
    /// [`UserScheduler::blocked`](crate::sched::UserScheduler::blocked) does not return.
    BlockedNeverAnswered,
    /// What was to be preempted runs on.
    NoYield,
    /// Its kernel thread sleeps in the kernel, masked.
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

/// What is done about it. Each includes those before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum OnMisbehaviour {
    /// Nobody looks.
    Ignore,
    /// Said on stderr, with the kernel thread's stack.
    Report,
    /// And the others go on: see [`crate::watchdog`].
    #[default]
    Override,
    /// Said, and the process aborts.
    End,
}

/// How far a user scheduler is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distrust {
    /// What is done.
    pub on: OnMisbehaviour,
    /// After how long: see [`crate::watchdog`] for what counts. 100 ms to an hour; beyond, the
    /// nearest of these. Short bounds are for tests.
    pub bound: Duration,
}

impl Default for Distrust {
    /// Overridden after a second: long beside anything that a scheduler does, a page fault on a
    /// slow disk included.
    fn default() -> Distrust {
        Distrust { on: OnMisbehaviour::default(), bound: Duration::from_secs(1) }
    }
}

impl Distrust {
    pub(super) const LEAST: u64 = 100;
    pub(super) const MOST: u64 = 3_600_000;

    /// `off`, `report`, `override` or `end`; with a bound in milliseconds: `report=200`.
    ///
    /// # Errors
    /// What is wanted instead.
    pub fn from_name(text: &str) -> Result<Distrust, String> {
        let asked = kumihimo_config::Watchdog::parse(text).map(Distrust::from);
        asked.ok_or_else(|| format!("{text:?}: expected {}", kumihimo_config::Watchdog::ALLOWED))
    }
}

/// As `KUMI_WATCHDOG` asks.
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
