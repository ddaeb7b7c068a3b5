//! Event sources: four ways to detect that a kernel thread sleeps, behind one trait.
//!
//! - [`EventSource`]: the trait. [`Kind`]: the names of its implementations.
//! - `bpf`, `perf`, `watch`, `off`: the sources, best first.
//! - `fallback`: a second source for threads to which the kernel refuses the first.
//! - `open`: the choice among them.
//!
//! Reports of `linux` flow in, indices of slots flow out to the pool. The room uses `linux`,
//! `handoff` and `report`.

mod bpf;
mod event_source;
mod fallback;
mod kind;
mod off;
mod open;
mod perf;
mod watch;

pub use event_source::EventSource;
pub use kind::Kind;
pub(crate) use open::report_once;
pub use open::{note, open, open_one, probe};
