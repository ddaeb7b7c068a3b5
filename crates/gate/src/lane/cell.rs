//! A cell: the header of a request or a reply, in shared memory and as each side has checked it.

use crate::error::{Error, ErrorKind};
use crate::loom::{AtomicU32, AtomicU64, MODEL, Ordering};

/// Most words of a chain of calls.
pub const CHAIN: usize = if MODEL { 1 } else { 15 };
/// Most regions of a request or reply.
pub const REGIONS: usize = if MODEL { 1 } else { 4 };
/// Priorities are 0 to 63.
pub const LEVELS: u8 = 64;
/// Bytes of payload that fit into the head of a cell; longer ones lie in the overflow area. So
/// brief calls touch few pages.
pub(super) const HEAD_PAYLOAD: usize = if MODEL { 8 } else { 128 };
/// Bytes of the head of a cell.
pub(super) const HEAD: usize = 256;

/// A cell of a lane, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellNo(pub(super) u16);

impl CellNo {
    /// Its number, below [`Geometry::cells`](super::Geometry::cells): to keep one's own records by.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The head of a cell in shared memory. All words are atomics, as the other side writes them at any
/// time.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct CellHead {
    /// Which request of this cell it is.
    serial: AtomicU32,
    /// Kind, flags, priority, depth of the chain: a byte each.
    shape: AtomicU32,
    /// Bytes of payload.
    len: AtomicU32,
    status: AtomicU32,
    deadline: AtomicU64,
    tag: AtomicU64,
    regions: [AtomicU32; REGIONS],
    /// The first four words are in the same cache line as all fields above.
    chain: [AtomicU32; CHAIN],
    _reserved: [AtomicU32; 5],
    pub(super) payload: [AtomicU64; HEAD_PAYLOAD / 8],
}

const _: () = assert!(MODEL || size_of::<CellHead>() == HEAD);

/// The gates through which a request came: those whose handlers wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    words: [u32; CHAIN],
    depth: u8,
}

impl Chain {
    /// Of a call that came through no gate.
    pub const NONE: Chain = Chain { words: [0; CHAIN], depth: 0 };

    /// Of these gates, outermost first; `None` if they are more than [`CHAIN`].
    pub fn of(words: &[u32]) -> Option<Chain> {
        let mut chain = Chain::default();
        words.iter().all(|word| chain.push(*word)).then_some(chain)
    }

    /// The gates, outermost first.
    pub fn words(&self) -> &[u32] {
        &self.words[..usize::from(self.depth)]
    }

    /// One more; `false`: it is full.
    #[must_use]
    pub fn push(&mut self, word: u32) -> bool {
        let room = usize::from(self.depth) < CHAIN;
        if room {
            self.words[usize::from(self.depth)] = word;
            self.depth += 1;
        }
        room
    }
}

/// The header of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// The kind of request; opaque to the lane.
    pub kind: u8,
    /// Opaque to the lane.
    pub flags: u8,
    /// The caller's priority, below [`LEVELS`].
    pub priority: u8,
    /// CLOCK_MONOTONIC nanoseconds; 0: none.
    pub deadline: u64,
    /// The lane does not look at it.
    pub tag: u64,
    /// The numbers of the regions that go with it, 0: none. Opaque to the lane.
    pub regions: [u32; REGIONS],
    /// The gates through which it came.
    pub chain: Chain,
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The outcome; opaque to the lane.
    pub status: u32,
    /// The lane does not look at it.
    pub tag: u64,
    /// The numbers of regions that go with it, 0: none. The lane does not look at them.
    pub regions: [u32; REGIONS],
}

impl CellHead {
    /// Relaxed, as all here: the entry of the ring orders it.
    pub(super) fn write_request(&self, serial: u32, len: u32, header: &RequestHeader) {
        let shape = [header.kind, header.flags, header.priority, header.chain.depth];
        self.serial.store(serial, Ordering::Relaxed);
        self.shape.store(u32::from_le_bytes(shape), Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.deadline.store(header.deadline, Ordering::Relaxed);
        self.tag.store(header.tag, Ordering::Relaxed);
        self.write_regions(&header.regions);
        for (shared, word) in self.chain.iter().zip(header.chain.words()) {
            shared.store(*word, Ordering::Relaxed);
        }
    }

    /// Serial, length and header, checked.
    pub(super) fn read_request(
        &self,
        cell: u32,
        inline: u32,
    ) -> Result<(u32, u32, RequestHeader), Error> {
        let [kind, flags, priority, depth] = self.shape.load(Ordering::Relaxed).to_le_bytes();
        if priority >= LEVELS || usize::from(depth) > CHAIN {
            return Err(malformed(format_args!(
                "the request in cell {cell} has priority {priority} and a chain of {depth} gates"
            )));
        }
        let mut chain = Chain { words: [0; CHAIN], depth };
        for (word, shared) in chain.words.iter_mut().zip(&self.chain[..usize::from(depth)]) {
            *word = shared.load(Ordering::Relaxed);
        }
        let header = RequestHeader {
            kind,
            flags,
            priority,
            deadline: self.deadline.load(Ordering::Relaxed),
            tag: self.tag.load(Ordering::Relaxed),
            regions: self.read_regions(),
            chain,
        };
        Ok((self.serial.load(Ordering::Relaxed), self.read_len(cell, inline)?, header))
    }

    pub(super) fn write_reply(&self, len: u32, header: &ReplyHeader) {
        self.len.store(len, Ordering::Relaxed);
        self.status.store(header.status, Ordering::Relaxed);
        self.tag.store(header.tag, Ordering::Relaxed);
        self.write_regions(&header.regions);
    }

    /// Length and header, checked.
    pub(super) fn read_reply(&self, cell: u32, inline: u32) -> Result<(u32, ReplyHeader), Error> {
        let header = ReplyHeader {
            status: self.status.load(Ordering::Relaxed),
            tag: self.tag.load(Ordering::Relaxed),
            regions: self.read_regions(),
        };
        Ok((self.read_len(cell, inline)?, header))
    }

    fn read_len(&self, cell: u32, inline: u32) -> Result<u32, Error> {
        let len = self.len.load(Ordering::Relaxed);
        if len > inline {
            return Err(malformed(format_args!(
                "the payload in cell {cell} is {len} bytes of {inline}"
            )));
        }
        Ok(len)
    }

    fn write_regions(&self, regions: &[u32; REGIONS]) {
        for (shared, region) in self.regions.iter().zip(regions) {
            shared.store(*region, Ordering::Relaxed);
        }
    }

    fn read_regions(&self) -> [u32; REGIONS] {
        std::array::from_fn(|i| self.regions[i].load(Ordering::Relaxed))
    }
}

/// The error for a breach of the protocol by the other side.
#[cold]
pub(super) fn malformed(what: std::fmt::Arguments<'_>) -> Error {
    Error::new(
        ErrorKind::Malformed,
        format!("the other side of the lane does not follow the protocol: {what}"),
    )
}

/// The error for an operation on a cell in the wrong state.
#[cold]
pub(super) fn wrong_state(cell: CellNo) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "cell {} of the lane is not where this can be done with it: this is a defect of the gate",
            cell.0
        ),
    )
}

/// The error for a payload that is too long for the lane.
#[cold]
pub(super) fn too_large(len: usize, inline: u32) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!(
            "{len} bytes, and the gate takes {inline}: pass a region, or serve with a larger `inline`"
        ),
    )
}

/// An entry of a ring, without its lap bit: 16 bits of cell, 14 bits of serial, and whether it
/// cancels.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingEntry(pub(super) u32);

const CANCEL: u32 = 1 << 30;
const SERIAL_BITS: u32 = (1 << 14) - 1;

impl RingEntry {
    #[inline]
    pub(super) fn new(cell: u32, serial: u32) -> RingEntry {
        RingEntry(cell | (serial & SERIAL_BITS) << 16)
    }
    #[inline]
    pub(super) fn cancel(cell: u32, serial: u32) -> RingEntry {
        RingEntry(RingEntry::new(cell, serial).0 | CANCEL)
    }
    /// Not above 65,535, and so perhaps above what the lane has.
    #[inline]
    pub(super) fn cell(self) -> u32 {
        self.0 & 0xffff
    }
    #[inline]
    pub(super) fn cancels(self) -> bool {
        self.0 & CANCEL != 0
    }
    /// Whether this serial has the bits of the entry's.
    #[inline]
    pub(super) fn is_of(self, serial: u32) -> bool {
        self.0 >> 16 & SERIAL_BITS == serial & SERIAL_BITS
    }
}
