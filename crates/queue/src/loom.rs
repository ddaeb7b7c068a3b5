//! The one place that chooses between the real atomics and loom's.
//!
//! Everything by which kernel threads hand items over comes from here, plain cells too: loom
//! reports a cell that is touched without a happens-before edge, which is exactly the promise that
//! `Node` asks for. What orders nothing (counters, published lengths, the word that says where an
//! item is) is real in the models too, since each access that loom knows multiplies what it has to
//! explore.

#[cfg(not(loom))]
pub(crate) use core::{
    cell::Cell,
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
};
/// For the lock of `locked`.
#[cfg(all(feature = "lab", not(loom)))]
pub(crate) use core::{hint::spin_loop, sync::atomic::AtomicBool};

pub(crate) use core::sync::atomic::{AtomicBool as Flag, AtomicU32, AtomicU64};

#[cfg(loom)]
pub(crate) use ::loom::{
    cell::Cell,
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
};
#[cfg(all(feature = "lab", loom))]
pub(crate) use ::loom::{hint::spin_loop, sync::atomic::AtomicBool};

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
