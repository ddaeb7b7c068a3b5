//! The designs of run queue, and what they have in common.
//!
//! A design composes the queues of `part` and moves items between them; it reaches the queues of
//! other VPs through `peers` and reads what they publish in `part::shared_side`. `capacity` decides
//! what is surplus. Uses `part`, `run_queue` (the trait that each design implements) and `node`.

pub(crate) mod capacity;
#[cfg(feature = "lab")]
pub mod locked;
pub(crate) mod peers;
pub mod ring;
#[cfg(all(feature = "lab", not(loom)))]
pub mod steal;
