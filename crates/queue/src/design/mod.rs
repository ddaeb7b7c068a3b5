//! Designs of run queues, and their common parts.
//!
//! A design composes the queues of `part` and moves items between them. It reaches other VPs'
//! queues through `peers`, and reads their published loads in `part::shared_side`. `capacity`
//! determines the surplus. Uses `part`, `run_queue` (the trait that each design implements) and
//! `node`.

pub(crate) mod capacity;
#[cfg(feature = "lab")]
pub mod locked;
pub(crate) mod peers;
pub mod ring;
#[cfg(all(feature = "lab", not(loom)))]
pub mod steal;
