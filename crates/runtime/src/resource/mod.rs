//! The process's resource table: its built-in kinds, the kinds of the crates above, memory regions,
//! and the control socket that answers for all of them. The board of the crates above is here too.
//!
//! Requests from outside come in at `control_socket` and go through the table. May use `observe`
//! and what it may use.

pub(crate) mod board_access;
pub mod builtin_kinds;
pub(crate) mod control_socket;
pub mod kind_table;
pub mod membership;
pub mod region;
