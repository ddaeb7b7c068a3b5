//! The time server: the paper's `TIME` service, separate from the file server (P1).
//!
//! As a mount, the server is a [`Store`](kumihimo_store::Store) of three files, `now`, `monotonic`
//! and `uptime`. As a [`gate`], it returns the same three values to other processes.
#![forbid(unsafe_code)]

pub mod gate;
mod reading;
mod store;

pub use reading::Reading;
pub use store::Clock;
