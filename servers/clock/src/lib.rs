//! The time server: P1's `TIME`, which a file server need not be asked for.
//!
//! As a small mount it is a [`Store`](kumihimo_store::Store) of three files, `now`, `monotonic` and
//! `uptime`; at a [`gate`] it answers the same three questions to processes that call it.
#![forbid(unsafe_code)]

pub mod gate;
mod reading;
mod store;

pub use reading::Reading;
pub use store::Clock;
