//! Memory that a direct read may go to.

use super::tree::BLOCK;

/// A buffer that begins at a multiple of [`BLOCK`]: what O_DIRECT asks for (open(2)).
pub struct Aligned {
    room: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Aligned {
    /// So many bytes, zeroed.
    #[must_use]
    pub fn new(bytes: usize) -> Aligned {
        // One block more than is needed: somewhere in it is the boundary. A Vec that is never grown
        // stays where it is.
        let room = vec![0; bytes + BLOCK];
        let start = room.as_ptr().align_offset(BLOCK);
        Aligned { room, start, bytes }
    }

    /// All of them.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.room[self.start..self.start + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_boundary() {
        for bytes in [1, BLOCK, 3 * BLOCK] {
            let mut aligned = Aligned::new(bytes);
            assert_eq!(
                (aligned.bytes().as_ptr() as usize % BLOCK, aligned.bytes().len()),
                (0, bytes)
            );
        }
    }
}
