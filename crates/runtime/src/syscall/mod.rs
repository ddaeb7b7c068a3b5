//! System calls that enter the kernel together, and reads that go to the disk.
//!
//! A microprocess leaves its call with the virtual processor, which runs the batch when it pays.
//! May use the rooms from `memory` down.

pub mod direct_read;
pub mod syscall_batch;
