//! Payloads in and out of memory that the other side may write at the same time.
//!
//! A payload that is written during the copy comes out as any mixture of bytes, which is for the
//! codec to judge; it must only not be undefined behaviour. A plain copy would be (a data race);
//! atomic words are right, but compilers leave them words [4 KiB 95 ns, `rep movsb` 50; 128 bytes 3
//! and 14]. So short payloads go by atomic words, long ones by assembly
//! ([`shared`](kumihimo_arch::copy::shared)): its accesses are outside the language's memory model,
//! as those of the other process are.

use kumihimo_arch::copy;

use crate::loom::{AtomicU64, Ordering};

/// Into the words of a cell's head; what remains of the last word is zero.
///
/// # Panics
/// If there are fewer words.
#[inline]
pub(super) fn into_words(to: &[AtomicU64], from: &[u8]) {
    let to = &to[..from.len().div_ceil(8)];
    let (whole, rest) = from.as_chunks::<8>();
    for (word, bytes) in to.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        to[whole.len()].store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
}

/// Out of the words of a cell's head; `to` has then just these bytes.
///
/// # Panics
/// If there are fewer words.
#[inline]
pub(super) fn out_of_words(from: &[AtomicU64], len: usize, to: &mut Vec<u8>) {
    to.clear();
    let from = &from[..len.div_ceil(8)];
    to.reserve(8 * from.len());
    let mut at = to.as_mut_ptr().cast::<u64>();
    // SAFETY: there is room for all these words, and `len` bytes of them are written.
    unsafe {
        for word in from {
            at.write_unaligned(word.load(Ordering::Relaxed));
            at = at.add(1);
        }
        to.set_len(len);
    }
}

/// Into shared memory.
///
/// # Safety
/// `from.len()` bytes at `to` are mapped, and Rust code has no reference to them.
#[inline]
pub(super) unsafe fn into_shared(to: *mut u8, from: &[u8]) {
    // SAFETY: mapped, as the caller promises; `from` is a slice.
    unsafe { copy::shared(to, from.as_ptr(), from.len()) }
}

/// Out of shared memory; `to` has then just these bytes.
///
/// # Safety
/// `len` bytes at `from` are mapped.
#[inline]
pub(super) unsafe fn out_of_shared(from: *const u8, len: usize, to: &mut Vec<u8>) {
    to.clear();
    to.reserve(len);
    // SAFETY: mapped, as the caller promises; `to` has the room. The copy has initialised what
    // becomes part of the vector.
    unsafe {
        copy::shared(to.as_mut_ptr(), from, len);
        to.set_len(len);
    }
}
