//! Payloads in and out of memory that the other side may write at the same time.
//!
//! A payload that is written during the copy comes out as any mixture of bytes, which is for the
//! codec to judge; it must only not be undefined behaviour. A plain copy would be (a data race);
//! atomic words are right, but compilers leave them words [4 KiB 95 ns, `rep movsb` 50; 128 bytes 3
//! and 14]. So short payloads go by atomic words, long ones by `rep movsb` in assembly: its
//! accesses are outside the language's memory model, as those of the other process are, and the
//! compiler has to assume of them whatever Rust code could do, for instance a loop over relaxed
//! atomic bytes.

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
    unsafe { copy(to, from.as_ptr(), from.len()) }
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
        copy(to.as_mut_ptr(), from, len);
        to.set_len(len);
    }
}

/// # Safety
/// `len` bytes are readable at `from` and writable at `to`, and the two do not overlap. One of them
/// may be shared memory that others write.
#[inline]
#[cfg(target_arch = "x86_64")]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    use std::arch::asm;
    // SAFETY: reads and writes what the caller vouches for, and memory only; the direction flag is
    // clear by the ABI. See the top on races.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
    }
}

/// Without the instruction, bytewise by atomic loads and stores.
///
/// # Safety
/// As on x86_64.
#[inline]
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    use std::sync::atomic::{AtomicU8, Ordering};
    for at in 0..len {
        // SAFETY: the caller's promise; a byte is always aligned. A slice is only read through it.
        unsafe {
            let byte = AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed);
            AtomicU8::from_ptr(to.add(at)).store(byte, Ordering::Relaxed);
        }
    }
}
