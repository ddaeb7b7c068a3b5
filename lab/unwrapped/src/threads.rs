//! Threads that run the bodies of a workload.

use std::time::Instant;

/// The code of one microprocess or thread.
pub type Body = Box<dyn FnOnce() + Send>;

/// Waits until a body has ended.
pub type Join = Box<dyn FnOnce() + Send>;

/// Increments a number behind a lock, and returns the new value.
pub type Counter = Box<dyn Fn() -> u64 + Send + Sync>;

/// Threads of one contender, with everything that a workload does through the contender's API.
pub trait Threads: Send + Sync {
    /// Spawns a thread.
    fn spawn(&self, body: Body) -> Join;

    /// Spawns a thread that has precedence over those of [`spawn`](Threads::spawn), if possible.
    fn spawn_above(&self, body: Body) -> Join;

    /// Yields to other threads.
    fn yield_now(&self);

    /// Sleeps until `deadline`.
    fn sleep_until(&self, deadline: Instant);

    /// A number behind the contender's own kind of lock.
    fn counter(&self) -> Counter;

    /// Returns whether a limit on kernel threads means a pool of threads that run the bodies in
    /// turn.
    fn has_pool(&self) -> bool;

    /// The contender's counters since its start.
    fn counts(&self) -> Vec<Count>;

    /// The event source in use; `None` if the contender has none.
    fn source(&self) -> Option<&'static str>;
}

/// A counter of a contender, which becomes a metric of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Name of the metric.
    pub metric: &'static str,
    /// Current value.
    pub total: u64,
    /// Divisor of its growth.
    pub per: Per,
}

/// Divisor of a counter's growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// The number of bodies.
    Body,
    /// The duration of the workload in seconds.
    Second,
}
