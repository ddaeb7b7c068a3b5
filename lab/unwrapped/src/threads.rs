//! What the bodies of a work run on.

use std::time::Instant;

/// What one microprocess or thread does, from its first call to its end.
pub type Body = Box<dyn FnOnce() + Send>;

/// Waits until a body has ended.
pub type Join = Box<dyn FnOnce() + Send>;

/// Adds one to a number behind a lock, and returns the sum.
pub type Counter = Box<dyn Fn() -> u64 + Send + Sync>;

/// The threads of one contender: all that a work does by the contender's own means.
pub trait Threads: Send + Sync {
    /// Begins a thread.
    fn spawn(&self, body: Body) -> Join;

    /// Begins a thread that takes precedence over those of [`spawn`](Threads::spawn), where that is
    /// possible.
    fn spawn_above(&self, body: Body) -> Join;

    /// Lets others run.
    fn yield_now(&self);

    /// Sleeps until `deadline`.
    fn sleep_until(&self, deadline: Instant);

    /// A number behind the contender's own kind of lock.
    fn counter(&self) -> Counter;

    /// Whether a limit on kernel threads means a pool of threads that run the bodies in turn.
    fn has_pool(&self) -> bool;

    /// What the contender has counted since its start.
    fn counts(&self) -> Vec<Count>;

    /// The source of events in use; `None` where there is no such thing.
    fn source(&self) -> Option<&'static str>;
}

/// One counter of a contender, which is a metric of the benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Its name as a metric.
    pub metric: &'static str,
    /// Its value now.
    pub total: u64,
    /// What its growth is divided by.
    pub per: Per,
}

/// What the growth of a counter is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// The number of bodies.
    Body,
    /// The seconds that the work took.
    Second,
}
