//! `stall`, for every Rust contender: requests come from outside in open loop while eight others
//! block in the kernel, or loop.
//!
//! The other side (`kumi-lab bench-outside`) is a process of its own and the same for all: it sends
//! the requests over Unix sockets, answers the stalls of `read` and `flock`, and serves the slow
//! files.
//! Both meet in one directory ([`Place`]).

mod fault;
mod plan;
mod served;
mod staller;

pub use fault::Pages;
pub use plan::{Place, Plan};
pub use served::{REQUEST, Served, requests_in};
pub use staller::{Staller, Totals};

/// How many stall at the same time.
pub const STALLERS: usize = 8;
/// Stalls a second, in all, that a kind must reach to count.
pub const RATE: f64 = 2_000.0;
/// Share of all cores' time that must be used for loops to count: what runs beside them needs some.
pub const BUSY: f64 = 0.75;
/// Microseconds that most stalls last, where the other side decides.
pub const SHORT_US: u32 = 1_500;
/// Microseconds of the long ones.
pub const LONG_US: u32 = 200_000;
/// One stall of so many is a long one.
pub const LONG_EVERY: u64 = 256;
/// Microseconds between two page faults of one staller: a disk is quicker than the other side.
pub const PAUSE_US: u64 = 2_000;
/// Connections over which the requests come.
pub const CONNECTIONS: usize = 4;
/// Rounds of [`kumihimo_bench_kit::work::spin`] a request: 40 us on a 4 GHz machine.
pub const WORK_ROUNDS: u32 = 30_000;
/// Pages of each staller in the file of `fault`.
pub const PAGES: usize = 256;
/// Bytes of a page.
pub const PAGE: usize = 4_096;

/// Nanoseconds of CLOCK_MONOTONIC, which all processes share.
#[must_use]
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
