//! Policies that look at the priority only.

use std::time::Duration;

use crate::{Info, Placement, Policy, Why};

/// Fixed priorities: the highest runs until it blocks, yields or ends; first in, first out within a
/// level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedPriority;

impl Policy for FixedPriority {
    fn name(&self) -> &str {
        "fixed"
    }

    fn place(&self, info: &Info, _: Why) -> Placement {
        Placement { level: info.effective().get(), quantum: Duration::MAX, key: None }
    }

    fn is_static(&self) -> bool {
        true
    }
}

/// The default: fixed priorities, and those of equal priority take turns of one quantum each.
///
/// A turn is measured from the moment at which the runtime has seen that one passes switch points
/// without leaving, some dozens of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundRobin {
    quantum: Duration,
}

impl RoundRobin {
    /// The quantum if nobody says otherwise: 10 ms.
    pub const QUANTUM: Duration = Duration::from_millis(10);

    /// Turns of [`RoundRobin::QUANTUM`].
    pub const fn new() -> RoundRobin {
        RoundRobin { quantum: RoundRobin::QUANTUM }
    }

    /// Turns of `quantum`. With zero, a turn lasts for some dozens of switch points.
    pub const fn with_quantum(quantum: Duration) -> RoundRobin {
        RoundRobin { quantum }
    }
}

impl Default for RoundRobin {
    fn default() -> RoundRobin {
        RoundRobin::new()
    }
}

impl Policy for RoundRobin {
    fn name(&self) -> &str {
        "round-robin"
    }

    fn place(&self, info: &Info, _: Why) -> Placement {
        Placement { level: info.effective().get(), quantum: self.quantum, key: None }
    }

    fn is_static(&self) -> bool {
        true
    }
}
