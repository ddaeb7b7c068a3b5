//! One priority scale for the whole machine (P0, section 3). Address spaces agree through a shared
//! board which VP runs on which core, without a daemon.
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! Each module depends only on the modules above it:
//!
//! - [`row`]: the cells of an address space's VPs, in which they sleep and are woken.
//! - [`slot`]: the slot of a core: taking, waiting, handing over; pure, modelled in loom.
//! - [`share`], [`feedback`]: rules by which an address space ranks below its level.
//! - [`board`]: the file, created, checked and mapped; records of overridden address spaces.
//! - [`core_notify`]: notification of a VP of another address space.
//! - [`member`]: an address space at the board: its row, and the number of other members.
//! - [`seat`]: a VP at the board, and its actions towards holders that do not leave a core.
//! - [`view`]: the board as read by observers.
#![deny(unsafe_op_in_unsafe_fn)]
#![cfg_attr(loom, allow(dead_code, reason = "only what is modelled is used"))]

mod clock;
pub mod core_notify;
mod loom;
pub mod row;
mod rules;
pub mod slot;

// Modules that map the file, whose layout does not match loom's atomics.
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
