//! Policies that use only the priority.

use std::time::Duration;

use crate::{Info, Placement, Policy, Why};

/// Fixed priorities: the highest runs until it blocks, yields or ends. First in, first out within a
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

/// Round robin, the default: fixed priorities, with turns of one quantum among equal ones.
///
/// The runtime starts to measure a turn once the microprocess has passed some dozens of switch
/// points without leaving its VP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundRobin {
    quantum: Duration,
}

impl RoundRobin {
    /// The default quantum: 10 ms.
    pub const QUANTUM: Duration = Duration::from_millis(10);

    /// Creates the policy with turns of [`RoundRobin::QUANTUM`].
    pub const fn new() -> RoundRobin {
        RoundRobin { quantum: RoundRobin::QUANTUM }
    }

    /// Creates the policy with turns of `quantum`. With zero, a turn lasts for some dozens of
    /// switch points.
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
