//! Queues from which the designs are composed.
//!
//! `protect_queue` and `waiver_queue` are the papers' (P4). `surplus_slot` holds one surplus item,
//! `injector` the items from other kernel threads, and `shared_side` the state that a VP publishes.
//! `deque` is for work stealing. Uses only `node` and [`crate::loom`].

#[cfg(feature = "lab")]
pub mod deque;
pub mod injector;
pub mod protect_queue;
pub(crate) mod shared_side;
pub mod surplus_slot;
pub mod waiver_queue;
