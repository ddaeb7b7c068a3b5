//! The queues of which designs are composed, each by itself.
//!
//! `protect_queue` and `waiver_queue` are the papers' (P4), `surplus_slot` holds one surplus item,
//! `injector` what other kernel threads hand over, `shared_side` what a VP publishes; `deque` is
//! for work stealing. Uses `node` and [`crate::loom`] alone.

#[cfg(feature = "lab")]
pub mod deque;
pub mod injector;
pub mod protect_queue;
pub(crate) mod shared_side;
pub mod surplus_slot;
pub mod waiver_queue;
