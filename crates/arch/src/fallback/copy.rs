//! Copies of memory that another thread or process may write at the same time.

use std::sync::atomic::{AtomicU8, Ordering};

/// Copies `len` bytes by atomic loads and stores of bytes.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`, and the two do not overlap. One of them
/// may be shared memory that others write.
#[inline]
pub unsafe fn shared(to: *mut u8, from: *const u8, len: usize) {
    for at in 0..len {
        // SAFETY: the caller's promise; a byte is always aligned. A slice is only read through it.
        unsafe {
            let byte = AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed);
            AtomicU8::from_ptr(to.add(at)).store(byte, Ordering::Relaxed);
        }
    }
}
