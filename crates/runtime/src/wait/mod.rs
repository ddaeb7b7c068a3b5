//! Waiting and waking: park, cancellation, readiness of descriptors, futures, and spinning.
//!
//! Everything that blocks in `sync`, `io` and `gate` is built on `park` and `Waiter::wake`. May use
//! `upcall` and what it may use.

pub mod cancel;
pub mod future;
pub mod park;
pub mod readiness;
pub mod spinning;
pub(crate) mod tracing_spans;
