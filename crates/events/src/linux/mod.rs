//! What Linux tells about kernel threads: bindings to its interfaces, without a policy of our own.
//!
//! - [`bpf`]: BPF programs that report when a thread leaves its core and returns.
//! - [`perf`]: a perf event whose descriptor becomes readable when a thread leaves its core.
//! - [`watch`]: CPU clocks, and thread states in /proc.
//! - [`limit`]: the limit on kernel threads that this machine imposes.
//!
//! Reports flow up to the event sources. The room uses `handoff` (the layout of the shared page)
//! and `report`.

pub mod bpf;
pub mod limit;
pub mod perf;
pub mod watch;
