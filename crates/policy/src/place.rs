//! The policy function and its vocabulary.

use std::time::Duration;

use crate::Priority;

/// What the mechanism knows about a microprocess when it asks for a placement.
///
/// Built with [`Info::new`]; fields may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Id of the microprocess, unique among the living.
    pub id: u64,
    /// Its own priority.
    pub priority: Priority,
    /// What it inherits from waiters for a lock that it holds.
    pub inherited: Option<Priority>,
    /// Level of its last placement; before the first one, that of its priority.
    pub level: u8,
    /// Quantum of its last placement; zero before the first one.
    pub quantum: Duration,
    /// How long it has run since its last placement; those for which it was outranked do not count.
    pub ran: Duration,
    /// Now, in nanoseconds of the monotonic clock.
    pub now_ns: u64,
    /// When its work is due, on the same clock as `now_ns`, if it was ever told.
    pub deadline_ns: Option<u64>,
}

impl Info {
    /// A microprocess that has never been placed.
    pub const fn new(id: u64, priority: Priority) -> Info {
        Info {
            id,
            priority,
            inherited: None,
            level: priority.get(),
            quantum: Duration::ZERO,
            ran: Duration::ZERO,
            now_ns: 0,
            deadline_ns: None,
        }
    }

    /// The larger of its own and the inherited priority.
    pub fn effective(&self) -> Priority {
        self.inherited.map_or(self.priority, |i| i.max(self.priority))
    }
}

/// Why a placement is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// It is new.
    Spawned,
    /// What it waited for has come.
    Woken,
    /// It gave the virtual processor up of its own accord.
    Yielded,
    /// It has used its quantum up and others want to run.
    QuantumOver,
    /// One of a higher level has come. The runtime lets the turn go on later: what is outranked
    /// goes before the others of its level whatever the key, and [`Info::ran`] is not begun anew.
    /// (A static policy that has quanta: it goes behind them, with a new one.)
    Outranked,
    /// Its own or inherited priority has changed while it was runnable.
    Reprioritised,
}

/// Where a runnable microprocess goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Level of the run queue, 0 (lowest) to 63; larger values count as 63.
    pub level: u8,
    /// How long it may run before others of its level get their turn; `Duration::MAX`: as long as
    /// it likes.
    pub quantum: Duration,
    /// Order within the level, smallest first, equal keys in order of arrival. `None`: first in,
    /// first out. Those with a key go before those without.
    pub key: Option<u64>,
}

/// Chooses where a runnable microprocess is placed.
///
/// `place` is a pure function: the same arguments give the same placement. It is called on the
/// runtime's own path, with preemption and cancellation held back: it must not block, and must not
/// call into Kumihimo. A lock that it shares with microprocesses is to be taken by them inside
/// `NoEvents` only: one that is made to give way while it holds the lock would have the policy wait
/// for it, and nobody would run it. If it panics the process aborts. It may be asked for a level
/// without anything being placed: on any kernel thread, to find the virtual processor that a woken
/// one outranks.
pub trait Policy: Send + Sync + 'static {
    /// A short name for reports.
    fn name(&self) -> &str;

    /// Where the microprocess that `info` describes goes now.
    fn place(&self, info: &Info, why: Why) -> Placement;

    /// Whether `place` depends on the effective priority only. The runtime then asks once and again
    /// when the priority changes, and spares itself the clock readings that `Info` needs.
    fn is_static(&self) -> bool {
        false
    }
}

impl<P: Policy + ?Sized> Policy for Box<P> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn place(&self, info: &Info, why: Why) -> Placement {
        (**self).place(info, why)
    }
    fn is_static(&self) -> bool {
        (**self).is_static()
    }
}

impl<P: Policy + ?Sized> Policy for std::sync::Arc<P> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn place(&self, info: &Info, why: Why) -> Placement {
        (**self).place(info, why)
    }
    fn is_static(&self) -> bool {
        (**self).is_static()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_is_the_larger_one() {
        let mut info = Info::new(1, Priority::DEFAULT);
        assert_eq!(info.effective(), Priority::DEFAULT);
        info.inherited = Some(Priority::LOWEST);
        assert_eq!(info.effective(), Priority::DEFAULT);
        info.inherited = Some(Priority::HIGHEST);
        assert_eq!(info.effective(), Priority::HIGHEST);
    }
}
