//! Process-wide facts for every runtime in the process: the mode (microprocesses or kernel
//! threads), the seat at the user's board, clocks, cores, and the futex calls.
//!
//! This room imports nothing of the crate. Data flows upward only: higher rooms query it, and it
//! calls none of them.

pub mod board;
pub(crate) mod clock;
pub(crate) mod cores;
pub(crate) mod futex;
pub(crate) mod mode;
