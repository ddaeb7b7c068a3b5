//! `stall` for every Rust contender: requests arrive in an open loop while eight stallers block in
//! the kernel or loop.
//!
//! The peer (`kumi-lab bench-outside`) is a separate process and the same for all contenders. It
//! sends the requests over Unix sockets, ends the stalls of `read` and `flock`, and serves the slow
//! files. Both processes share one directory ([`Place`]).

mod fault;
mod plan;
mod served;
mod staller;

pub use fault::Pages;
pub use plan::{Place, Plan};
pub use served::{REQUEST, Served, requests_in};
pub use staller::{Staller, Totals};

/// Number of concurrent stallers.
pub const STALLERS: usize = 8;
/// Minimum total number of stalls a second for a valid measurement of a kind.
pub const RATE: f64 = 2_000.0;
/// Minimum share of the cores' time for a valid measurement with loops. Other work beside them
/// needs some.
pub const BUSY: f64 = 0.75;
/// Duration of most stalls in microseconds, if the peer determines it.
pub const SHORT_US: u32 = 1_500;
/// Duration of long stalls in microseconds.
pub const LONG_US: u32 = 200_000;
/// One stall of this many is long.
pub const LONG_EVERY: u64 = 256;
/// Pause between two page faults of one staller in microseconds, because a disk is faster than the
/// peer.
pub const PAUSE_US: u64 = 2_000;
/// Number of connections for the requests.
pub const CONNECTIONS: usize = 4;
/// Rounds of [`kumihimo_bench_kit::work::spin`] for each request: 40 us on a 4 GHz machine.
pub const WORK_ROUNDS: u32 = 30_000;
/// Number of pages for each staller in the file of `fault`.
pub const PAGES: usize = 256;
/// Size of a page in bytes.
pub const PAGE: usize = 4_096;

/// CLOCK_MONOTONIC in nanoseconds. All processes share this clock.
#[must_use]
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
