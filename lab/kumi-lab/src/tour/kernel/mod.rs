//! Chapters on what a microprocess cannot do alone: a clock beside blocked or looping ones.
//!
//! - `blocks`: chapter 7, blocks in the kernel; `loops`: chapter 8, endless loops and priorities.
//! - `faults`: chapter 13, a panic and an overflow.
//!
//! Each starts this program once more as a child, with events and without, and draws what the
//! child's clock printed.

pub mod blocks;
pub mod faults;
pub mod loops;
