//! Bindings to Linux interfaces that report the states of kernel threads. They contain no policy.
//!
//! - [`bpf`]: BPF programs that report when a thread leaves its core and returns.
//! - [`perf`]: a perf event whose descriptor becomes readable when a thread leaves its core.
//! - `perf_event`: perf_event_open(2), for these and the doorbell of preemption.
//! - [`watch`]: CPU clocks, and thread states in /proc.
//! - `epoll`, `debugger`: registration with epoll(7), and detection of a debugger.
//! - [`wakeup`]: wake-ups through descriptors that the program may have closed.
//! - [`limit`]: the limit on kernel threads that this machine imposes.
//! - [`cores`]: the cores that this process may use.
//! - `control_group`: the control groups of the process, for these two.
//!
//! Reports flow up to the event sources. The room uses `handoff` (the layout of the shared page)
//! and `report`.

pub mod bpf;
pub(crate) mod control_group;
pub mod cores;
pub(crate) mod debugger;
pub(crate) mod epoll;
pub mod limit;
pub mod perf;
pub(crate) mod perf_event;
pub mod wakeup;
pub mod watch;
