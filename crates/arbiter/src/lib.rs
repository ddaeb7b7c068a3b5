//! One priority scale for the machine (P0, section 3): which VP runs on which core, agreed between
//! address spaces over a shared board, without a daemon.
//!
//! Each module uses only those above it:
//!
//! - [`row`]: the cells of an address space's virtual processors, where they sleep and are woken.
//! - [`slot`]: a core's slot: taking, waiting, handing over; pure, modelled in loom.
//! - [`share`], [`feedback`]: the rules by which an address space ranks lower than its level.
//! - [`board`]: the file: made, checked, mapped; and the recently overridden address spaces.
//! - [`core_notify`]: how a virtual processor of another address space is notified.
//! - [`member`]: an address space at the board: its row, how many others there are.
//! - [`seat`]: a virtual processor at the board, and what it does about holders that do not leave.
//! - [`view`]: the board, read by observers.
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(loom, allow(dead_code, reason = "only what is modelled is used"))]

mod clock;
pub mod core_notify;
mod loom;
pub mod row;
mod rules;
pub mod slot;

// Everything that maps the file, whose layout loom's atomics do not have.
#[cfg(not(loom))]
pub mod board;
#[cfg(not(loom))]
mod holder;
#[cfg(not(loom))]
pub mod member;
#[cfg(not(loom))]
pub mod seat;
#[cfg(not(loom))]
pub mod view;

pub use rules::{feedback, share};
