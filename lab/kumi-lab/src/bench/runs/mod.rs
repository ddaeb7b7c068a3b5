//! Benchmarks that need more than one process that prints its samples and ends.
//!
//! One module for each benchmark: it starts the contenders of `plan` and their peers of `load`,
//! alternates them round by round, and returns samples. The code of Kumihimo's contender is in
//! `lab/micro`, the rivals are in `lab/rivals`.
//!
//! Samples flow to `report`; contenders that are missing or refused go to `Missing`. These modules
//! may use `contender`, `plan` and the rows of `report`, and never `figures`.

pub mod control;
pub mod hostile;
pub mod idle;
pub mod inversion;
pub mod observe;
pub mod priority;
pub mod remote;
pub mod report;
pub mod resources;
pub mod rpc;
pub mod servers;
pub mod sockets;
pub mod stall;
pub mod trace;
pub mod unmodified;
pub mod unwrapped;
