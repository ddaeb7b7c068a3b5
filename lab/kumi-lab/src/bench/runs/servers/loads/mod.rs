//! Operations on files and clocks of one mount, one module for each load.
//!
//! - `paper`: the first load of P1; `commands`: real programs; `modern`: concurrent operations.
//! - `slow`: reads beside a slow disk; `gate`: calls to the clock without a mount.
//!
//! Each sends commands to the load generator, on the mount of `mounted`, and makes samples from the
//! replies and from the server's CPU time.

pub mod commands;
pub mod gate;
pub mod modern;
pub mod paper;
pub mod slow;
