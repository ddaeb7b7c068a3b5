//! The choice between real atomics and those of loom, which explores the models' interleavings.
//!
//! Only the lane is modelled: nothing above it is built under `--cfg loom`.

#[cfg(loom)]
pub(crate) use ::loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Whether this build is for the models, whose cells are smaller.
pub(crate) const MODEL: bool = cfg!(loom);
