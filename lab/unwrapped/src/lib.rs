//! `unwrapped` for every contender: code that blocks in calls that no runtime wraps, which is most
//! existing code: sockets of std, third-party crates, std's locks, page faults.
//!
//! A workload is the same for all contenders; they differ in the threads that run its bodies
//! ([`Threads`]). A clock ticks beside each workload, so that a contender cannot win by stalling
//! others. `redis`, `levels`, `http`, `long` and `ureq` need a process at the other end of their
//! sockets, `kumi-lab bench-peer`, which prints the port to connect to.

mod clock;
mod connections;
mod kernel_threads;
mod observer;
mod plan;
mod run;
mod threads;
mod work;

pub use connections::{Connections, Own};
pub use kernel_threads::KernelThreads;
pub use kumihimo_bench_http::reply;
pub use plan::{Kind, Limit, Plan};
pub use threads::{Body, Count, Counter, Join, Per, Threads};
