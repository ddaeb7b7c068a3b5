//! The policy trait and its types.

use std::time::Duration;

use crate::Priority;

/// The state of a microprocess that a policy receives.
///
/// Created by [`Info::new`]; fields may be added.
///
/// # Examples
///
/// ```
/// use kumihimo::policy::{FixedPriority, Info, Policy, Priority, Why};
///
/// // A microprocess of the lowest priority holds a lock for which one of the highest waits. A test
/// // of a policy needs no runtime.
/// let mut info = Info::new(1, Priority::LOWEST);
/// info.inherited = Some(Priority::HIGHEST);
/// assert_eq!(FixedPriority.place(&info, Why::Reprioritised).level, 63);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The ID of the microprocess, unique among living ones.
    pub id: u64,
    /// The microprocess's own priority.
    pub priority: Priority,
    /// The priority inherited from waiters for a lock that it holds.
    pub inherited: Option<Priority>,
    /// The level of the last placement; before the first one, the level of the priority.
    pub level: u8,
    /// The quantum of the last placement; zero before the first one.
    pub quantum: Duration,
    /// The run time since the last placement. Placements for [`Why::Outranked`] do not reset it.
    pub ran: Duration,
    /// The present time, in nanoseconds of the monotonic clock.
    pub now_ns: u64,
    /// The deadline of its work on the same clock as `now_ns`, if one was set.
    pub deadline_ns: Option<u64>,
}

impl Info {
    /// Creates the state of a microprocess that has never been placed.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::policy::{Info, Priority};
    ///
    /// let info = Info::new(7, Priority::DEFAULT);
    /// assert_eq!((info.id, info.level), (7, 32));
    /// assert!(info.inherited.is_none() && info.quantum.is_zero());
    /// ```
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

    /// Returns the larger of the own and the inherited priority.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::policy::{Info, Priority};
    ///
    /// let mut info = Info::new(7, Priority::DEFAULT);
    /// info.inherited = Some(Priority::LOWEST);
    /// assert_eq!(info.effective(), Priority::DEFAULT);
    /// info.inherited = Some(Priority::HIGHEST);
    /// assert_eq!(info.effective(), Priority::HIGHEST);
    /// ```
    pub fn effective(&self) -> Priority {
        self.inherited.map_or(self.priority, |i| i.max(self.priority))
    }
}

/// The reason for a placement.
///
/// # Examples
///
/// ```
/// use kumihimo::policy::{Feedback, Info, Policy, Priority, Why};
/// use std::time::Duration;
///
/// let mut info = Info::new(1, Priority::DEFAULT);
/// info.quantum = Duration::from_millis(4);
/// info.ran = info.quantum;
/// let quantum = |why| Feedback::new().place(&info, why).quantum;
/// assert_eq!(quantum(Why::Outranked), Duration::from_millis(4));
/// assert_eq!(quantum(Why::QuantumOver), Duration::from_millis(8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The microprocess is new.
    Spawned,
    /// The condition that the microprocess waited for has occurred.
    Woken,
    /// The microprocess gave the virtual processor up voluntarily.
    Yielded,
    /// The microprocess has used its quantum up, and others are runnable.
    QuantumOver,
    /// A microprocess of a higher level became runnable. The turn continues later: an outranked
    /// microprocess precedes the others of its level whatever the key, and [`Info::ran`] is not
    /// reset. (Under a static policy with quanta it queues behind them, with a new quantum.)
    Outranked,
    /// The own or inherited priority changed while the microprocess was runnable.
    Reprioritised,
}

/// The place of a runnable microprocess.
///
/// # Examples
///
/// ```
/// use kumihimo::policy::{Info, Placement, Policy, Priority, RoundRobin, Why};
///
/// let placement = RoundRobin::new().place(&Info::new(1, Priority::DEFAULT), Why::Spawned);
/// let expected = Placement { level: 32, quantum: RoundRobin::QUANTUM, key: None };
/// assert_eq!(placement, expected);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The level of the run queue, 0 (lowest) to 63; larger values count as 63.
    pub level: u8,
    /// The time that it may run before others of its level get their turn; `Duration::MAX` for no
    /// limit.
    pub quantum: Duration,
    /// The order within the level, smallest first; equal keys in the order of arrival. `None` means
    /// first in, first out. Microprocesses with a key precede those without.
    pub key: Option<u64>,
}

/// Chooses where a runnable microprocess is placed.
///
/// `place` is a pure function: equal arguments give equal placements. The runtime calls it on its
/// own path, with preemption and cancellation held back. It must not block, and must not call into
/// Kumihimo. If it panics, the process aborts.
///
/// If `place` takes a lock, microprocesses may take that lock only inside `NoEvents`. Otherwise a
/// microprocess could be preempted while it holds the lock. `place` would then wait for the lock,
/// and the microprocess would never run again.
///
/// The runtime may also call `place` without placing a microprocess: on any kernel thread, to find
/// the virtual processor that a woken microprocess outranks.
///
/// # Examples
///
/// ```
/// use kumihimo::policy::{Info, Placement, Policy, Why};
/// use kumihimo::runtime::Runtime;
/// use kumihimo::sync::mpsc;
/// use kumihimo::thread;
/// use std::time::{Duration, Instant};
///
/// struct EarliestDeadline;
///
/// impl Policy for EarliestDeadline {
///     fn name(&self) -> &str {
///         "earliest deadline"
///     }
///
///     fn place(&self, info: &Info, _: Why) -> Placement {
///         let level = info.effective().get();
///         Placement { level, quantum: Duration::MAX, key: info.deadline_ns }
///     }
/// }
///
/// // On one virtual processor, the order is visible.
/// let runtime = Runtime::builder().vps(1).policy(EarliestDeadline).build()?;
/// let order: Vec<u64> = runtime.run(|| {
///     let (sender, receiver) = mpsc::channel();
///     for seconds in [30, 10, 20] {
///         let sender = sender.clone();
///         let due = Instant::now() + Duration::from_secs(seconds);
///         thread::Builder::new().due(due).spawn(move || sender.send(seconds)).unwrap();
///     }
///     drop(sender);
///     receiver.iter().collect()
/// });
/// assert_eq!(order, [10, 20, 30]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Policy: Send + Sync + 'static {
    /// Returns a short name for reports.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::policy::{FixedPriority, Policy};
    ///
    /// assert_eq!(FixedPriority.name(), "fixed");
    /// ```
    fn name(&self) -> &str;

    /// Returns the place of the microprocess that `info` describes.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::policy::{FixedPriority, Info, Policy, Priority, RoundRobin, Why};
    /// use std::time::Duration;
    ///
    /// let policies: [Box<dyn Policy>; 2] = [Box::new(FixedPriority), Box::new(RoundRobin::new())];
    /// let info = Info::new(1, Priority::DEFAULT);
    /// let quanta = policies.map(|policy| policy.place(&info, Why::Woken).quantum);
    /// assert_eq!(quanta, [Duration::MAX, RoundRobin::QUANTUM]);
    /// ```
    fn place(&self, info: &Info, why: Why) -> Placement;

    /// Returns whether `place` depends only on the effective priority. The runtime then calls it
    /// once, and again when the priority changes, and saves the clock readings that `Info` needs.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::policy::{Feedback, Policy, RoundRobin};
    ///
    /// // The depth of `Feedback` depends on the time that the microprocess ran.
    /// assert!(RoundRobin::new().is_static());
    /// assert!(!Feedback::new().is_static());
    /// ```
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
