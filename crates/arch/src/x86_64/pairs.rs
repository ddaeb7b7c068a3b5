//! Comparison of words by pairs of neighbours, in one vector register.

use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_load_si128, _mm_movemask_epi8, _mm_or_si128,
    _mm_setzero_si128, _mm_xor_si128,
};

/// The bits in which pairs of words differ from what is expected. Vectors, because the compiler
/// would compare the two words one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Difference(__m128i);

impl Difference {
    #[inline(always)]
    pub(crate) fn none() -> Difference {
        #[allow(unused_unsafe)] // safe to call from Rust 1.87 on
        // SAFETY: SSE2 is part of x86_64.
        Difference(unsafe { _mm_setzero_si128() })
    }

    /// Adds the bits of `masks` in which `words` differs from `expected`.
    ///
    /// # Safety
    /// Each pointer is that of two words, and a multiple of 16.
    #[inline(always)]
    pub(crate) unsafe fn with(
        self,
        words: *const u64,
        masks: *const u64,
        expected: *const u64,
    ) -> Difference {
        // SAFETY: the caller's promise; SSE2 is part of x86_64.
        unsafe {
            let words = _mm_load_si128(words.cast());
            let counting = _mm_and_si128(words, _mm_load_si128(masks.cast()));
            let expected = _mm_load_si128(expected.cast());
            Difference(_mm_or_si128(self.0, _mm_xor_si128(counting, expected)))
        }
    }

    #[inline(always)]
    pub(crate) fn is_any(self) -> bool {
        #[allow(unused_unsafe)] // as above
        // SAFETY: SSE2 is part of x86_64.
        unsafe {
            _mm_movemask_epi8(_mm_cmpeq_epi8(self.0, _mm_setzero_si128())) != 0xffff
        }
    }
}
