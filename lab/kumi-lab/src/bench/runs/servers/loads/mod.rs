//! What is done with files and clocks on one mount, a module a load.
//!
//! - `paper`: the loads of P1; `commands`: real programs; `modern`: operations in parallel.
//! - `slow`: reads beside a slow disk; `gate`: calls to the clock without a mount.
//!
//! Each tells the load's process what to do, through the mount that `mounted` holds, and turns its
//! answers and the server's CPU time into samples.

pub mod commands;
pub mod gate;
pub mod modern;
pub mod paper;
pub mod slow;
