//! Memory suitable for direct reads.

use super::tree::BLOCK;

/// A buffer whose address is a multiple of [`BLOCK`], as O_DIRECT requires (open(2)).
pub struct Aligned {
    room: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Aligned {
    /// Creates a zeroed buffer of `bytes` bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Aligned {
        // One block more than needed, so that it contains an aligned address. A Vec that never
        // grows does not move.
        let room = vec![0; bytes + BLOCK];
        let start = room.as_ptr().align_offset(BLOCK);
        Aligned { room, start, bytes }
    }

    /// The buffer's contents.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.room[self.start..self.start + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_aligned_to_a_block() {
        for bytes in [1, BLOCK, 3 * BLOCK] {
            let mut aligned = Aligned::new(bytes);
            assert_eq!(
                (aligned.bytes().as_ptr() as usize % BLOCK, aligned.bytes().len()),
                (0, bytes)
            );
        }
    }
}
