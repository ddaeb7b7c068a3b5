//! Streams, timers and an executor for futures, on the runtime's own readiness and timers.
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo::futures`.
//!
//! `stream.rs` and `sleep.rs` are the futures' side. The waker of a `block_on` is called by the VP
//! that reports the edge. Other wakers, and those of timers, are called by the service
//! (`service.rs`), a microprocess that lives while it is needed.

mod executor;
#[cfg(feature = "hyper")]
mod hyper;
mod service;
mod sleep;
mod stream;
mod timers;

pub use executor::Executor;
#[cfg(feature = "hyper")]
pub use hyper::Timer;
pub use kumihimo_io::polled::PolledStream;
pub use sleep::{Sleep, sleep, sleep_until};
pub use stream::Polled;
