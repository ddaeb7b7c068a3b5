//! The process's resource table: its built-in kinds, the kinds of higher crates, memory regions,
//! and the control socket that serves all of them. Also the access of higher crates to the board.
//!
//! Requests from other processes arrive at `control_socket` and go through the table. May use
//! `observe` and the rooms that `observe` may use.

pub(crate) mod board_access;
pub mod builtin_kinds;
pub(crate) mod control_socket;
pub mod kind_table;
pub mod membership;
pub mod region;
mod threads;
mod top;
