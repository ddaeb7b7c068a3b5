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
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{Distrust, OnMisbehaviour};
///
/// assert_eq!(Distrust::default().on, OnMisbehaviour::Override);
/// // Each response includes those before it.
/// assert!(OnMisbehaviour::Override > OnMisbehaviour::Report);
/// ```
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
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{Distrust, OnMisbehaviour, Runtime};
///
/// // For tests: a microprocess that cannot be interrupted ends the process.
/// let distrust = Distrust { on: OnMisbehaviour::End, ..Distrust::default() };
/// let runtime = Runtime::builder().on_misbehaviour(distrust).build()?;
/// assert_eq!(runtime.run(|| 6 * 7), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::{Distrust, OnMisbehaviour};
    /// use std::time::Duration;
    ///
    /// let expected = Distrust { on: OnMisbehaviour::Report, bound: Duration::from_millis(200) };
    /// assert_eq!(Distrust::from_name("report=200"), Ok(expected));
    /// assert!(Distrust::from_name("tolerate").is_err());
    /// ```
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
