//! Scheduling order and turns: the policy's placement, the order of priorities over all VPs,
//! requests to change a priority, quanta, and the claim on a core.
//!
//! The protocols here operate on published levels and traits; `scheduler` applies them to its
//! queues. May use `trace_hooks`, `kernel_thread` and `microprocess`.

#[cfg(not(loom))]
pub(crate) mod common_level;
#[cfg(not(loom))]
pub(crate) mod core_claim;
#[cfg(not(loom))]
pub(crate) mod lost_time;
#[cfg(not(loom))]
pub(crate) mod placement;
pub(crate) mod priority_order;
#[cfg(not(loom))]
pub(crate) mod priority_requests;
#[cfg(not(loom))]
pub(crate) mod turn_clock;
#[cfg(not(loom))]
pub(crate) mod turn_wait;
