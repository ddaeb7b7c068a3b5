//! `unwrapped`, for every contender: code that blocks in calls which no runtime wraps, as most code
//! does. Sockets of std, another author's crates, std's locks, page faults.
//!
//! A work is the same for all contenders; they differ in what its bodies run on ([`Threads`]).
//! Beside each work a clock ticks, so that a contender cannot win by stalling others. `redis`,
//! `levels`, `http` and `long` need a process on the other side of their sockets,
//! `kumi-lab bench-peer`, which tells the port to connect to.

mod clock;
mod kernel_threads;
mod observer;
mod plan;
mod run;
mod threads;
mod work;

pub use kernel_threads::KernelThreads;
pub use plan::{Kind, Limit, Plan};
pub use threads::{Body, Count, Counter, Join, Per, Threads};
pub use work::http::reply;
