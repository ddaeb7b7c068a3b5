//! The words of a block whose change makes a rewrite of the C library's part necessary.

use crate::machine::pairs::Difference;

/// Words by pairs of neighbours, so that the processor compares two at once: every end of a
/// microprocess compares all of them.
#[derive(Default, Clone, PartialEq)]
pub(super) struct Watched(Vec<Pair>);

#[derive(Clone, PartialEq)]
#[repr(C, align(16))]
struct Pair {
    /// The bits that count.
    masks: [u64; 2],
    expected: [u64; 2],
    /// Of the first word, from the thread pointer; a multiple of 16.
    offset: isize,
}

impl Watched {
    /// Watches `words` (offset, mask, expected), which are in order.
    pub(super) fn new(words: impl IntoIterator<Item = (isize, u64, u64)>) -> Watched {
        let mut pairs: Vec<Pair> = Vec::new();
        for (word, mask, expected) in words {
            let (offset, place) = (word & !15, (word & 15) as usize / 8);
            if pairs.last().is_none_or(|pair| pair.offset != offset) {
                pairs.push(Pair { masks: [0; 2], expected: [0; 2], offset });
            }
            let pair = pairs.last_mut().expect("pushed if there was none");
            (pair.masks[place], pair.expected[place]) = (mask, expected & mask);
        }
        Watched(pairs)
    }

    /// Returns whether a watched word of the block differs from that of a new block.
    ///
    /// # Safety
    /// `fs` is a multiple of 16. The words given to [`Watched::new`], and the other words of their
    /// pairs, are in the block at `fs`, on which the caller runs or no thread does.
    pub(super) unsafe fn differ(&self, fs: *const u8) -> bool {
        let mut differ = Difference::none();
        for pair in &self.0 {
            // SAFETY: the words are in the block, pairs are aligned in it and in memory. Other
            // threads change at most a bit that is masked.
            differ = unsafe {
                let words = fs.offset(pair.offset).cast();
                differ.with(
                    words,
                    (&raw const pair.masks).cast(),
                    (&raw const pair.expected).cast(),
                )
            };
        }
        differ.is_any()
    }

    /// Offsets of the memory that a comparison reads.
    pub(super) fn offsets(&self) -> impl Iterator<Item = isize> + '_ {
        self.0.iter().flat_map(|pair| [pair.offset, pair.offset + 8])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_watched_bit_and_no_other_counts() {
        let watched = [1_usize, 3, 4, 5, 7];
        let mask = |word: usize| if word == 4 { !0x40 } else { !0 };
        let value = |word: usize| word as u64 * 0x0101_0101_0101_0101;
        #[repr(align(16))]
        struct Block([u64; 8]);
        let of = |block: &Block| {
            let words = watched.iter().map(|&word| (8 * word as isize, mask(word), value(word)));
            let watched = Watched::new(words);
            // SAFETY: the block is aligned and has 64 bytes.
            unsafe { watched.differ(block.0.as_ptr().cast()) }
        };
        let fresh = std::array::from_fn(value);
        assert!(!of(&Block(fresh)));
        for word in 0..8 {
            for bit in 0..64 {
                let mut block = Block(fresh);
                block.0[word] ^= 1 << bit;
                let counts = watched.contains(&word) && mask(word) >> bit & 1 == 1;
                assert_eq!(of(&block), counts, "bit {bit} of word {word}");
            }
        }
    }
}
