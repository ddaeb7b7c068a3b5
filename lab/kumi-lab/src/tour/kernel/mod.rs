//! Chapters about events of the kernel: a clock beside blocked or looping microprocesses.
//!
//! - `blocks`: chapter 7, blocks in the kernel; `loops`: chapter 8, endless loops and priorities.
//! - `faults`: chapter 13, a panic and an overflow.
//!
//! Each starts this program as a child process, with and without events, and draws the output of
//! the child's clock.

pub mod blocks;
pub mod faults;
pub mod loops;
