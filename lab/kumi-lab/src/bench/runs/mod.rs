//! The benchmarks that are more than one process which prints its samples and ends.
//!
//! One module a benchmark: it starts the contenders of `plan` and their other sides of `load`,
//! alternates them round by round, and returns samples. What a contender does lies in
//! `lab/micro`, the rivals in `lab/rivals`.
//!
//! Samples flow to `report`; contenders that are missing or refused go to `Missing`. These modules
//! may use `contender`, `plan` and the rows of `report`, and never `figures`.

pub mod control;
pub mod idle;
pub mod inversion;
pub mod priority;
pub mod resources;
pub mod rpc;
pub mod servers;
pub mod sockets;
pub mod stall;
pub mod trace;
pub mod unwrapped;
