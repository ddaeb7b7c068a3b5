//! Selects the real atomics or loom's.
//!
//! Every shared variable through which kernel threads transfer items comes from this module,
//! including plain cells. Loom reports an access to a cell without a happens-before edge, and such
//! an edge is what `Node` requires. Variables that order nothing (counters, published lengths, the
//! word with an item's home) are real atomics in the models too, since every modelled access
//! multiplies the state space.

#[cfg(not(loom))]
pub(crate) use core::{
    cell::Cell,
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
};
/// Used by the lock of `locked`.
#[cfg(all(feature = "lab", not(loom)))]
pub(crate) use core::{hint::spin_loop, sync::atomic::AtomicBool};

pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64};

#[cfg(loom)]
pub(crate) use ::loom::{
    cell::Cell,
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
};
#[cfg(all(feature = "lab", loom))]
pub(crate) use ::loom::{hint::spin_loop, sync::atomic::AtomicBool};

/// Separates data written by different kernel threads. 128 bytes, because x86 prefetches cache
/// lines in pairs.
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

impl<T> core::ops::Deref for Padded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
