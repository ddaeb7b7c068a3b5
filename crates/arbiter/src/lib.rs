//! One priority scale for the machine (P0, section 3): which VP runs on which core, agreed between
//! address spaces over a shared board, without a daemon.
//!
//! - [`row`]: the cells of an address space's virtual processors, where they lie down and are
//!   called.
//! - [`slot`]: a core's slot: taking, waiting, handing over; pure, modelled in loom.
//! - [`board`]: the file: made, checked, mapped.
//! - [`member`]: an address space at the board: its row, how many others there are.
//! - [`seat`]: a virtual processor at the board, and what it does about holders that do not leave.
//! - [`share`], [`feedback`]: the rules by which an address space counts lower than its level.
//! - [`offences`]: recently overridden address spaces.
//! - [`tell`]: how a virtual processor of another address space is told.
//! - [`view`]: the board, to be looked at.
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(loom, allow(dead_code, reason = "only what is modelled is used"))]

mod atomic;
pub mod row;
pub mod slot;

#[cfg(not(loom))]
pub mod board;
#[cfg(not(loom))]
pub mod error;
#[cfg(not(loom))]
pub mod feedback;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod life;
#[cfg(not(loom))]
mod locks;
#[cfg(not(loom))]
pub mod member;
#[cfg(not(loom))]
pub mod offences;
#[cfg(not(loom))]
mod scribbled;
#[cfg(not(loom))]
pub mod seat;
#[cfg(not(loom))]
pub mod share;
#[cfg(not(loom))]
#[cfg(not(loom))]
pub mod tell;
#[cfg(not(loom))]
pub mod view;
#[cfg(not(loom))]
mod watched;

#[cfg(not(loom))]
pub use layout::VERSION;
