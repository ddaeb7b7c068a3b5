//! Policies that use only the priority.

use std::time::Duration;

use crate::{Info, Placement, Policy, Why};

/// Fixed priorities: the highest runs until it blocks, yields or ends. First in, first out within a
/// level.
///
/// # Examples
///
/// ```
/// use kumihimo::policy::FixedPriority;
/// use kumihimo::runtime::Runtime;
/// use kumihimo::sync::mpsc;
/// use kumihimo::thread::{Builder, Priority};
///
/// // On one virtual processor, the order is visible.
/// let runtime = Runtime::builder().vps(1).policy(FixedPriority).build()?;
/// let order: Vec<u8> = runtime.run(|| {
///     let (sender, receiver) = mpsc::channel();
///     for level in [10, 30, 20] {
///         let (priority, sender) = (Priority::new(level).unwrap(), sender.clone());
///         Builder::new().priority(priority).spawn(move || sender.send(level)).unwrap();
///     }
///     drop(sender);
///     receiver.iter().collect()
/// });
/// assert_eq!(order, [30, 20, 10]);
/// # Ok::<(), std::io::Error>(())
/// ```
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
///
/// # Examples
///
/// ```
/// use kumihimo::policy::RoundRobin;
/// use kumihimo::runtime::Runtime;
/// use kumihimo::thread;
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// use std::time::Duration;
///
/// let policy = RoundRobin::with_quantum(Duration::from_millis(1));
/// let runtime = Runtime::builder().vps(1).policy(policy).build()?;
/// let done = AtomicBool::new(false);
/// runtime.run(|| {
///     thread::scope(|s| {
///         // Never waits for the other microprocess, which gets its turn nevertheless.
///         s.spawn(|| while !done.load(Relaxed) { thread::cancellation_point() });
///         s.spawn(|| done.store(true, Relaxed));
///     })
/// });
/// assert!(done.into_inner());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundRobin {
    quantum: Duration,
}

impl RoundRobin {
    /// The default quantum: 10 ms.
    pub const QUANTUM: Duration = Duration::from_millis(10);

    /// Creates the policy with turns of [`RoundRobin::QUANTUM`].
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::policy::{Info, Policy, Priority, RoundRobin, Why};
    ///
    /// let placement = RoundRobin::new().place(&Info::new(1, Priority::DEFAULT), Why::Spawned);
    /// assert_eq!(placement.quantum, RoundRobin::QUANTUM);
    /// ```
    pub const fn new() -> RoundRobin {
        RoundRobin { quantum: RoundRobin::QUANTUM }
    }

    /// Creates the policy with turns of `quantum`. With zero, a turn lasts for some dozens of
    /// switch points.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::policy::{Info, Policy, Priority, RoundRobin, Why};
    /// use std::time::Duration;
    ///
    /// let policy = RoundRobin::with_quantum(Duration::from_millis(3));
    /// let placement = policy.place(&Info::new(1, Priority::DEFAULT), Why::Yielded);
    /// assert_eq!(placement.quantum, Duration::from_millis(3));
    /// ```
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
