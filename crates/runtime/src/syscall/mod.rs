//! Batched system calls, and direct reads.
//!
//! A microprocess queues its call at its VP, which runs the batch when that is worth while. May use
//! the rooms from `memory` down.

pub(crate) mod batch_config;
pub(crate) mod batch_queue;
pub(crate) mod direct_read;
pub(crate) mod last_reads;
pub(crate) mod trial;
