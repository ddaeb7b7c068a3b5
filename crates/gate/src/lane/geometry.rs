//! How large a lane is, and where its parts lie.

use super::cell::{HEAD, HEAD_PAYLOAD};
use crate::error::{Error, ErrorKind};

/// Most cells of a lane: an entry has 16 bits for a cell.
const MOST_CELLS: u32 = 1 << 16;
/// Most payload bytes of a cell.
const MOST_INLINE: u32 = 1 << 20;
/// Most bytes of a lane.
const MOST_BYTES: u64 = 1 << 30;
const PAGE: u64 = 4096;

/// How many cells a lane has, and how many bytes of payload each takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    cells: u32,
    inline: u32,
}

impl Default for Geometry {
    /// 1,024 cells of 4,096 bytes.
    fn default() -> Geometry {
        Geometry { cells: 1024, inline: 4096 }
    }
}

impl Geometry {
    /// Just these numbers, unverified.
    ///
    /// # Errors
    /// `Malformed`: `cells` is no power of two or above 65,536; `inline` is no multiple of 64, or
    /// not 128 bytes to 1 MiB; all together is more than 1 GiB.
    pub fn checked(cells: u32, inline: u32) -> Result<Geometry, Error> {
        let geometry = Geometry { cells, inline };
        let cells_right = cells.is_power_of_two() && cells <= MOST_CELLS;
        let inline_right = inline.is_multiple_of(64) && (128..=MOST_INLINE).contains(&inline);
        if !cells_right || !inline_right || geometry.bytes() as u64 > MOST_BYTES {
            let text = format!(
                "a lane of {cells} cells of {inline} bytes is not possible: the other side speaks another protocol"
            );
            return Err(Error::new(ErrorKind::Malformed, text));
        }
        Ok(geometry)
    }

    /// The next larger possible numbers.
    ///
    /// # Errors
    /// `Invalid`: none or more than 65,536 cells, more than 1 MiB each, or more than 1 GiB
    /// together.
    pub fn fitting(cells: u32, inline: u32) -> Result<Geometry, Error> {
        let refused = || {
            let text = format!(
                "{cells} requests in flight of {inline} bytes: a lane has 1 to {MOST_CELLS}, of at most {MOST_INLINE} bytes, and 1 GiB in all"
            );
            Error::new(ErrorKind::Invalid, text)
        };
        if !(1..=MOST_CELLS).contains(&cells) || inline > MOST_INLINE {
            return Err(refused());
        }
        Geometry::checked(cells.next_power_of_two(), inline.next_multiple_of(64).max(128))
            .map_err(|_| refused())
    }

    /// Cells.
    pub fn cells(self) -> u32 {
        self.cells
    }

    /// Bytes of payload that a cell takes.
    pub fn inline(self) -> u32 {
        self.inline
    }

    /// Bytes of memory, whole pages. Only pages that are touched cost memory.
    pub fn bytes(self) -> usize {
        (self.overflow() + self.cells as usize * self.overflow_stride())
            .next_multiple_of(PAGE as usize)
    }

    /// Entries of the ring of requests: see [`Ring`](super::ring) on why 4 for each cell.
    pub(super) fn requests(self) -> usize {
        4 * self.cells as usize
    }

    /// Entries of the ring of replies: one for each cell.
    pub(super) fn replies(self) -> usize {
        self.cells as usize
    }

    /// Where the ring of requests begins.
    pub(super) fn requests_at(self) -> usize {
        PAGE as usize
    }

    /// Where the ring of replies begins. The two never share a line.
    pub(super) fn replies_at(self) -> usize {
        PAGE as usize + (4 * self.requests()).next_multiple_of(128)
    }

    /// Where the heads of the cells begin.
    pub(super) fn heads(self) -> usize {
        (self.replies_at() + 4 * self.replies()).next_multiple_of(PAGE as usize)
    }

    /// Where the payloads begin that are too long for the head of their cell.
    pub(super) fn overflow(self) -> usize {
        (self.heads() + HEAD * self.cells as usize).next_multiple_of(PAGE as usize)
    }

    /// Bytes of such a payload; none, if no payload is too long.
    pub(super) fn overflow_stride(self) -> usize {
        if self.inline as usize > HEAD_PAYLOAD { self.inline as usize } else { 0 }
    }
}
