//! The records of the handshake, of fixed layout, little-endian, each one packet:
//! ```text
//! 0  magic "KUMI"   4  version u16   6  type of record u8
//! hello    7  1: types are given  8  types u64  16  size  24  address
//!          46  placement u8       47  length of the name u8  48  name
//!          and perhaps the origin: length u8, text
//! welcome  7  0                   8  link u64   16  size  24  address  46  0
//!          and with it a descriptor: the lane
//! refused  7  kind of error u8    8  length of the text u16  10  text
//! size: cells u32, inline u32 (0, 0: no wish)
//! address: 1: there is one u8, board u128, row u32, bit u8
//! ```
//! The first seven bytes and all of `refused` are the same in every version, so that two versions
//! can tell each other which they are.

use kumihimo_machine::gates::check_name;

use crate::error::{Error, ErrorKind};
use crate::options::Placement;
use crate::wire::error_record::{decode_error, encode_error};

/// Version of the protocol between two processes: these records, those of
/// [`link`](crate::link::socket), and the contents of a lane.
pub(crate) const VERSION: u16 = 1;

const MAGIC: [u8; 4] = *b"KUMI";
const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REFUSED: u8 = 3;
const FIXED: usize = 47;
/// The size of a lane in a record, which its receiver checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneSize {
    /// 0: as the server likes.
    pub(crate) cells: u32,
    /// Bytes of payload in each; 0: as the server likes.
    pub(crate) inline: u32,
}

/// Where an address space waits for posts. The board is identified by its file (device and inode).
/// A false address only wakes the wrong process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WakeAddress {
    pub(crate) board: u128,
    pub(crate) row: u32,
    /// What is posted there for this link, below 64.
    pub(crate) bit: u8,
}

/// The request of a client for a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The gate.
    pub(crate) name: String,
    /// The hash of the types of request and reply; `None`: raw bytes.
    pub(crate) types: Option<u64>,
    pub(crate) size: LaneSize,
    pub(crate) wake_address: Option<WakeAddress>,
    /// Where both sides are to run.
    pub(crate) placement: Placement,
    /// The caller on another machine for which this client calls: that of a border. At most 255
    /// bytes.
    pub(crate) origin: Option<String>,
}

/// The server's answer to an admitted client, beside the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// The server's number for the link.
    pub(crate) link: u64,
    pub(crate) size: LaneSize,
    pub(crate) wake_address: Option<WakeAddress>,
}

fn header(what: u8, then: u8) -> Vec<u8> {
    let mut record = Vec::with_capacity(FIXED);
    record.extend_from_slice(&MAGIC);
    record.extend_from_slice(&VERSION.to_le_bytes());
    record.extend_from_slice(&[what, then]);
    record
}

fn put_fields(
    record: &mut Vec<u8>,
    first: u64,
    size: LaneSize,
    wake_address: Option<WakeAddress>,
    last: u8,
) {
    record.extend_from_slice(&first.to_le_bytes());
    record.extend_from_slice(&size.cells.to_le_bytes());
    record.extend_from_slice(&size.inline.to_le_bytes());
    record.push(wake_address.is_some().into());
    let WakeAddress { board, row, bit } =
        wake_address.unwrap_or(WakeAddress { board: 0, row: 0, bit: 0 });
    record.extend_from_slice(&board.to_le_bytes());
    record.extend_from_slice(&row.to_le_bytes());
    record.extend_from_slice(&[bit, last]);
    debug_assert_eq!(record.len(), FIXED);
}

/// `N` bytes at `at`, which the caller has seen to be there.
fn at<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

fn malformed(what: &str) -> Error {
    Error::new(
        ErrorKind::Malformed,
        format!("{what} does not follow the protocol of gates: another program?"),
    )
}

/// The kind of record, of those of this version.
fn record_kind(record: &[u8], from: &str) -> Result<u8, Error> {
    if record.len() < 8 || record[..4] != MAGIC {
        return Err(malformed(&format!("what {from} says")));
    }
    let (theirs, what) = (u16::from_le_bytes(at(record, 4)), record[6]);
    if theirs != VERSION && what != REFUSED {
        return Err(Error::new(
            ErrorKind::Version,
            format!(
                "{from} speaks version {theirs} of the protocol of gates, and this process version {VERSION}: build both with one version of Kumihimo"
            ),
        ));
    }
    Ok(what)
}

fn flag(byte: u8, from: &str) -> Result<bool, Error> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(malformed(&format!("what {from} says"))),
    }
}

fn size_and_address(record: &[u8], from: &str) -> Result<(LaneSize, Option<WakeAddress>), Error> {
    let size = LaneSize {
        cells: u32::from_le_bytes(at(record, 16)),
        inline: u32::from_le_bytes(at(record, 20)),
    };
    let (board, row) = (u128::from_le_bytes(at(record, 25)), u32::from_le_bytes(at(record, 41)));
    let wake_address = WakeAddress { board, row, bit: record[45] & 63 };
    Ok((size, flag(record[24], from)?.then_some(wake_address)))
}

/// Splits a text off that follows its length.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

impl Hello {
    /// As a record. The name is one that [`check_name`] allows.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut record = header(HELLO, self.types.is_some().into());
        put_fields(
            &mut record,
            self.types.unwrap_or(0),
            self.size,
            self.wake_address,
            self.placement as u8,
        );
        for text in std::iter::once(&self.name).chain(&self.origin) {
            record.push(text.len() as u8);
            record.extend_from_slice(text.as_bytes());
        }
        record
    }

    /// # Errors
    /// `Version`, `Malformed`.
    pub(crate) fn decode(record: &[u8]) -> Result<Hello, Error> {
        const FROM: &str = "the caller";
        let what = record_kind(record, FROM)?;
        let wrong = || malformed("what the caller says");
        let texts = record.get(FIXED..).filter(|_| what == HELLO).ok_or_else(wrong)?;
        let (name, rest) = text(texts).ok_or_else(wrong)?;
        let origin = match rest {
            [] => None,
            rest => Some(text(rest).filter(|(_, rest)| rest.is_empty()).ok_or_else(wrong)?.0),
        };
        let types = flag(record[7], FROM)?.then_some(u64::from_le_bytes(at(record, 8)));
        let (size, wake_address) = size_and_address(record, FROM)?;
        let name = str::from_utf8(name).map_err(|_| malformed("the name of a gate"))?;
        let origin = origin.map(|origin| str::from_utf8(origin).map(str::to_owned));
        let origin = origin.transpose().map_err(|_| malformed("the origin of calls"))?;
        check_name(name).map_err(|e| Error::new(ErrorKind::Malformed, e.to_string()))?;
        let placement =
            Placement::from_number(record[46]).ok_or_else(|| malformed("what the caller says"))?;
        Ok(Hello { name: name.to_owned(), types, size, wake_address, placement, origin })
    }
}

impl Welcome {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut record = header(WELCOME, 0);
        put_fields(&mut record, self.link, self.size, self.wake_address, 0);
        record
    }

    /// Decodes the server's answer.
    ///
    /// # Errors
    /// `Version`, `Malformed`; what it refuses with, of any kind.
    pub(crate) fn decode(record: &[u8]) -> Result<Welcome, Error> {
        const FROM: &str = "the server";
        match record_kind(record, FROM)? {
            WELCOME if record.len() == FIXED && record[7] == 0 => {
                let (size, wake_address) = size_and_address(record, FROM)?;
                Ok(Welcome { link: u64::from_le_bytes(at(record, 8)), size, wake_address })
            }
            REFUSED => {
                Err(decode_error(&record[7..]).unwrap_or_else(|| malformed("what the server says")))
            }
            _ => Err(malformed("what the server says")),
        }
    }
}

/// A refusal as a record.
pub(crate) fn refusal(error: &Error) -> Vec<u8> {
    let mut record = header(REFUSED, 0);
    record.pop();
    encode_error(&mut record, error);
    record
}

#[cfg(test)]
mod tests;
