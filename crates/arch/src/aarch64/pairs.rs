//! Comparison of words by pairs of neighbours, which one instruction loads.

/// The bits in which pairs of words differ from what is expected.
#[derive(Clone, Copy)]
pub(crate) struct Difference([u64; 2]);

impl Difference {
    #[inline(always)]
    pub(crate) fn none() -> Difference {
        Difference([0; 2])
    }

    /// Adds the bits of `masks` in which `words` differs from `expected`.
    ///
    /// # Safety
    /// Each pointer is that of two words.
    #[inline(always)]
    pub(crate) unsafe fn with(
        self,
        words: *const u64,
        masks: *const u64,
        expected: *const u64,
    ) -> Difference {
        // SAFETY: the caller's promise.
        let bits = |i: usize| unsafe {
            words.add(i).read() & masks.add(i).read() ^ expected.add(i).read()
        };
        Difference([self.0[0] | bits(0), self.0[1] | bits(1)])
    }

    #[inline(always)]
    pub(crate) fn is_any(self) -> bool {
        self.0[0] | self.0[1] != 0
    }
}
