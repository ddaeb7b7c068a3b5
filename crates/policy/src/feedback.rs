//! Multi-level feedback.

use std::time::Duration;

use crate::{Info, Placement, Policy, Why};

/// Multi-level feedback: work that keeps using whole quanta sinks, work that waits more than it
/// runs rises.
///
/// Priorities stay strict: between two microprocesses of different priority the higher one always
/// goes first. *Within* one priority there are [`Feedback::DEPTHS`] depths. At depth `d` a quantum
/// is `first << d` long, and the microprocess queues `d * delay` behind those at depth 0: its key
/// is the time of its placement plus that delay.
///
/// - spawned: depth: 0.
/// - quantum over: depth: one deeper.
/// - yielded: ran: at least half its quantum; depth: one deeper (yielding just before the end gains
///   nothing).
/// - woken: ran: less than a quarter of its quantum; depth: one up.
/// - outranked: ran: its turn goes on later; depth: unchanged.
/// - anything else: depth: unchanged.
///
/// So a computation that now and then waits for a lock stays where it sank: it does not get the
/// place of one that waits for input. Nothing starves within a priority: the key of a waiting one
/// stays, the keys of newcomers grow with the clock, and after at most `(DEPTHS - 1) * delay` even
/// those at depth 0 queue behind it. That is why the depths are delays and not levels of their own:
/// a pure function is not asked about waiting ones, so real levels could not age.
///
/// The depth is read back from the last quantum, so no state is kept beside [`Info`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    first: Duration,
    delay: Duration,
}

impl Feedback {
    /// How many depths there are.
    pub const DEPTHS: u32 = 5;

    /// Quanta from 2 ms at the top to 32 ms at the bottom, each depth 20 ms behind the one above.
    pub const fn new() -> Feedback {
        Feedback { first: Duration::from_millis(2), delay: Duration::from_millis(20) }
    }

    /// Quanta from `first` at the top, doubled at each depth; each depth queues `delay` behind the
    /// one above.
    ///
    /// A `first` below 1 microsecond counts as 1 microsecond, above one minute as one minute; so
    /// does a longer `delay`.
    pub fn with_quantum(first: Duration, delay: Duration) -> Feedback {
        const MINUTE: Duration = Duration::from_secs(60);
        Feedback { first: first.clamp(Duration::from_micros(1), MINUTE), delay: delay.min(MINUTE) }
    }

    fn quantum(&self, depth: u32) -> Duration {
        self.first * (1 << depth)
    }

    /// The depth that gave `quantum`: the deepest one whose quantum is no longer.
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
        // At most 4 minutes: fits.
        let delay = (self.delay * depth).as_nanos() as u64;
        Placement {
            level: info.effective().get(),
            quantum: self.quantum(depth),
            key: Some(info.now_ns.saturating_add(delay)),
        }
    }
}
