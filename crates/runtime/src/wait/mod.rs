//! Waiting and waking: park, cancellation, readiness of descriptors, futures, and spinning.
//!
//! Every blocking operation in `sync`, `io` and `gate` is built on `park` and `Waiter::wake`. May
//! use `upcall` and the rooms that `upcall` may use.

pub mod any_ready;
pub(crate) mod blocking;
pub mod cancel;
pub mod direct_read;
pub(crate) mod foreign_poll;
pub mod future;
pub mod interrupt;
pub mod park;
pub(crate) mod process_poller;
pub mod readiness;
pub(crate) mod registration;
pub(crate) mod sleep;
pub mod spinning;
pub mod syscall_batch;
pub(crate) mod tracing_spans;
