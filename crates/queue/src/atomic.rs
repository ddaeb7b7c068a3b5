//! The one place that chooses between the real atomics and loom's.
//!
//! Everything that two kernel threads may touch comes from here, plain cells too: loom reports a cell
//! that is touched without a happens-before edge, which is exactly the promise `Node` asks for.

#[cfg(not(loom))]
pub(crate) use core::{
    cell::Cell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::{
    cell::Cell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// Keeps what two kernel threads write apart. 128: x86 prefetches lines in pairs.
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> core::ops::Deref for Padded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
