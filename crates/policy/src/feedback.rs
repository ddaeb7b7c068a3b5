//! Feedback: a policy with several depths within one priority.

use std::time::Duration;

use crate::{Info, Placement, Policy, Why};

/// Multi-level feedback: a microprocess that uses whole quanta sinks, and one that waits more than
/// it runs rises.
///
/// Priorities stay strict: of two microprocesses with different priorities, the higher one always
/// runs first. *Within* one priority there are [`Feedback::DEPTHS`] depths. At depth `d` a quantum
/// is `first << d` long, and the microprocess queues `d * delay` behind those at depth 0. Its key
/// is the time of its placement plus that delay.
///
/// The depth after each reason for a placement:
///
/// - Spawned: 0.
/// - Quantum over: one deeper.
/// - Yielded after at least half of the quantum: one deeper, so that yielding just before the end
///   gains nothing.
/// - Woken after less than a quarter of the quantum: one up.
/// - Outranked: unchanged, since the turn continues later.
/// - Any other reason: unchanged.
///
/// So a computation that sometimes waits for a lock stays at its depth. It does not get the place
/// of a microprocess that waits for input.
///
/// Nothing starves within a priority. The key of a waiting microprocess does not change, and the
/// keys of newcomers grow with the clock. After at most `(DEPTHS - 1) * delay`, even newcomers at
/// depth 0 queue behind it. For this reason depths are delays, not levels: a pure function is not
/// called for waiting microprocesses, so that real levels could not age.
///
/// The depth is derived from the last quantum, so the policy keeps no state besides [`Info`].
///
/// # Examples
///
/// ```
/// use kumihimo::policy::{Feedback, Info, Policy, Priority, Why};
///
/// let policy = Feedback::new();
/// let mut info = Info::new(1, Priority::DEFAULT);
/// let first = policy.place(&info, Why::Spawned);
///
/// // The microprocess uses its whole quantum. The next one is longer, and it queues later.
/// info.quantum = first.quantum;
/// info.ran = first.quantum;
/// let second = policy.place(&info, Why::QuantumOver);
/// assert_eq!(second.quantum, 2 * first.quantum);
/// assert!(second.key > first.key);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    first: Duration,
    delay: Duration,
}

impl Feedback {
    /// The number of depths.
    pub const DEPTHS: u32 = 5;

    /// Creates the policy with quanta from 2 ms at the top to 32 ms at the bottom, and 20 ms
    /// between two depths.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::policy::Feedback;
    /// use kumihimo::runtime::{Runtime, metrics};
    ///
    /// let runtime = Runtime::builder().policy(Feedback::new()).build()?;
    /// assert_eq!(runtime.run(|| metrics().unwrap().policy), "feedback");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn new() -> Feedback {
        Feedback { first: Duration::from_millis(2), delay: Duration::from_millis(20) }
    }

    /// Creates the policy with a quantum of `first` at the top, doubled at each depth, and `delay`
    /// between two depths.
    ///
    /// `first` is clamped to the range from 1 microsecond to one minute, `delay` to one minute at
    /// most.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::policy::{Feedback, Info, Policy, Priority, Why};
    /// use std::time::Duration;
    ///
    /// let policy = Feedback::with_quantum(Duration::from_millis(5), Duration::from_millis(50));
    /// let placement = policy.place(&Info::new(1, Priority::DEFAULT), Why::Spawned);
    /// assert_eq!(placement.quantum, Duration::from_millis(5));
    /// ```
    pub fn with_quantum(first: Duration, delay: Duration) -> Feedback {
        const MINUTE: Duration = Duration::from_secs(60);
        Feedback { first: first.clamp(Duration::from_micros(1), MINUTE), delay: delay.min(MINUTE) }
    }

    fn quantum(&self, depth: u32) -> Duration {
        self.first * (1 << depth)
    }

    /// Returns the depth of `quantum`: the deepest one whose quantum is no longer.
    fn depth(&self, quantum: Duration) -> u32 {
        (1..Feedback::DEPTHS).rev().find(|&d| self.quantum(d) <= quantum).unwrap_or(0)
    }
}

impl Default for Feedback {
    fn default() -> Feedback {
        Feedback::new()
    }
}

impl Policy for Feedback {
    fn name(&self) -> &str {
        "feedback"
    }

    fn place(&self, info: &Info, why: Why) -> Placement {
        let depth = self.depth(info.quantum);
        let deeper = (depth + 1).min(Feedback::DEPTHS - 1);
        let depth = match why {
            Why::Spawned => 0,
            Why::QuantumOver => deeper,
            Why::Yielded if info.ran >= self.quantum(depth) / 2 => deeper,
            Why::Woken if info.ran < self.quantum(depth) / 4 => depth.saturating_sub(1),
            Why::Yielded | Why::Woken | Why::Outranked | Why::Reprioritised => depth,
        };
        // At most 4 minutes, which fits.
        let delay = (self.delay * depth).as_nanos() as u64;
        Placement {
            level: info.effective().get(),
            quantum: self.quantum(depth),
            key: Some(info.now_ns.saturating_add(delay)),
        }
    }
}
