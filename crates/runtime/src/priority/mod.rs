//! Which microprocess goes first, and for how long: the policy's placement, the order of priorities
//! over all virtual processors, requests to change a priority, turns, and the claim on a core.
//!
//! The protocols here work on published levels and traits; `scheduler` applies them to its queues.
//! May use `trace_hooks`, `kernel_thread` and `microprocess`.

#[cfg(not(loom))]
pub(crate) mod common_level;
#[cfg(not(loom))]
pub(crate) mod core_claim;
#[cfg(not(loom))]
pub(crate) mod placement;
pub(crate) mod priority_order;
#[cfg(not(loom))]
pub(crate) mod priority_requests;
#[cfg(not(loom))]
pub(crate) mod turn_clock;
#[cfg(not(loom))]
pub(crate) mod turn_wait;
