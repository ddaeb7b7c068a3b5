//! Free memory: pooled microprocess slots and memory regions, and the return of unused stack memory
//! to the kernel. [`frames`] walks the stack in use.
//!
//! Each VP keeps short lists, which exchange batches with lists of the process. May use
//! `kernel_thread`, `microprocess` and `process`.

pub(crate) mod frames;
pub(crate) mod pool;
pub(crate) mod region_cache;
pub(crate) mod stack_trim;
