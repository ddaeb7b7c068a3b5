//! The memory of a lane, and where its parts lie: rings, heads of cells, payloads. What they mean
//! is left to the protocol.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::slice;

use super::cell::{CellHead, HEAD, HEAD_PAYLOAD, malformed};
use super::geometry::Geometry;
use crate::error::Error;
use crate::loom::{AtomicU32, Ordering};
use crate::memory::{Memory, Pages};

mod copy;

/// "KUMILANE" as the machine stores it, in two words.
const MAGIC: [u32; 2] = [u32::from_ne_bytes(*b"KUMI"), u32::from_ne_bytes(*b"LANE")];
/// Changes whenever something else is where it was, or means something else.
const VERSION: u32 = 1;

/// The memory of a lane.
#[derive(Debug)]
pub(super) struct LaneMemory {
    memory: Memory,
    geometry: Geometry,
}

impl LaneMemory {
    pub(super) fn create(name: &str, geometry: Geometry) -> Result<(LaneMemory, OwnedFd), Error> {
        let (memory, fd) = Memory::create(name, geometry.bytes(), Pages::AsTouched)?;
        let lane = LaneMemory { memory, geometry };
        for (word, says) in lane.words(0, 5).iter().zip(lane.header()) {
            word.store(says, Ordering::Relaxed);
        }
        Ok((lane, fd))
    }

    pub(super) fn open(fd: BorrowedFd<'_>, geometry: Geometry) -> Result<LaneMemory, Error> {
        let lane = LaneMemory { memory: Memory::map(fd, geometry.bytes())?, geometry };
        let found: Vec<u32> =
            lane.words(0, 5).iter().map(|word| word.load(Ordering::Relaxed)).collect();
        if found != lane.header() {
            return Err(malformed(format_args!(
                "its memory begins with {found:x?}, not with {:x?}",
                lane.header()
            )));
        }
        Ok(lane)
    }

    /// What the memory begins with.
    fn header(&self) -> [u32; 5] {
        [MAGIC[0], MAGIC[1], VERSION, self.geometry.cells(), self.geometry.inline()]
    }

    #[inline]
    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    pub(super) fn requests(&self) -> &[AtomicU32] {
        self.words(self.geometry.requests_at(), self.geometry.requests())
    }

    #[inline]
    pub(super) fn replies(&self) -> &[AtomicU32] {
        self.words(self.geometry.replies_at(), self.geometry.replies())
    }

    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub(super) fn head(&self, cell: u32) -> &CellHead {
        assert!(cell < self.geometry.cells());
        // SAFETY: there is such a cell, so its head lies in the mapping, which lives as long as
        // `self`; it is aligned, since heads begin with a page. It consists of atomics, so
        // others may write it.
        unsafe { &*self.at(self.geometry.heads() + HEAD * cell as usize).cast::<CellHead>() }
    }

    /// # Panics
    /// If there is no such cell, or the payload is longer than the lane's `inline`.
    #[inline]
    pub(super) fn write_payload(&self, cell: u32, payload: &[u8]) {
        if payload.len() <= HEAD_PAYLOAD {
            copy::into_words(&self.head(cell).payload, payload);
        } else {
            let to = self.overflow(cell, payload.len());
            // SAFETY: `overflow` has seen to it that these bytes are in the mapping, and no
            // reference to them is ever made.
            unsafe { copy::into_shared(to, payload) }
        }
    }

    /// # Panics
    /// As [`write_payload`](LaneMemory::write_payload).
    #[inline]
    pub(super) fn read_payload(&self, cell: u32, len: usize, to: &mut Vec<u8>) {
        if len <= HEAD_PAYLOAD {
            copy::out_of_words(&self.head(cell).payload, len, to);
        } else {
            let from = self.overflow(cell, len);
            // SAFETY: `overflow` has seen to it that these bytes are in the mapping.
            unsafe { copy::out_of_shared(from, len, to) }
        }
    }

    /// Where a payload of this length lies that is too long for the head.
    #[inline]
    fn overflow(&self, cell: u32, len: usize) -> *mut u8 {
        let stride = self.geometry.overflow_stride();
        assert!(cell < self.geometry.cells() && len <= stride);
        self.at(self.geometry.overflow() + stride * cell as usize)
    }

    /// Words of a ring or of the beginning.
    #[inline]
    fn words(&self, offset: usize, n: usize) -> &[AtomicU32] {
        debug_assert!(offset.is_multiple_of(4) && offset + 4 * n <= self.memory.len());
        // SAFETY: the geometry puts them into the mapping, aligned; they are atomics, so others
        // may write them.
        unsafe { slice::from_raw_parts(self.at(offset).cast::<AtomicU32>(), n) }
    }

    #[inline]
    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.memory.len());
        self.memory.start().wrapping_add(offset)
    }
}
