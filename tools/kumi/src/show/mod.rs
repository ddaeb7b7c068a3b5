//! Shows the machine's address spaces without changing them.
//!
//! - `ps`: the microprocesses; `watch`: one of them, change by change.
//! - `locks`: locks with holders and waiters.
//! - `resources`: the usage table; `metrics`: counters for Prometheus.
//! - `board`: the address spaces that share the cores.
//! - `top`: all of these live in the terminal, with keys that send requests.
//!
//! Replies flow from the control sockets, through `ask`, to tables and JSON lines formatted by
//! `text`. Only `top` uses `steer`, because its keys send the same requests.

pub(crate) mod board;
pub(crate) mod locks;
pub(crate) mod metrics;
pub(crate) mod ps;
pub(crate) mod resources;
pub(crate) mod top;
pub(crate) mod watch;

pub use ps::show_space;
