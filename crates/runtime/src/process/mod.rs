//! Facts of the process that hold for every runtime in it: its mode (microprocesses or kernel
//! threads), its seat at the user's board, and the futex calls.
//!
//! The room imports nothing of the crate. Data flows upward only: the rooms above ask, and nothing
//! here calls back.

pub mod board;
pub(crate) mod clock;
pub(crate) mod cores;
pub(crate) mod futex;
pub(crate) mod mode;
