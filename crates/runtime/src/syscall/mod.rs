//! System calls that enter the kernel together, and reads that go to the disk.
//!
//! A microprocess leaves its call with the virtual processor, which runs the batch when it pays.
//! May use the rooms from `memory` down.

pub(crate) mod batch_config;
pub(crate) mod batch_queue;
pub(crate) mod direct_read;
pub(crate) mod last_reads;
pub(crate) mod trial;
