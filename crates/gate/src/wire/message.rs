//! What the words in a lane mean that the lane does not look at. Numbers are part of the protocol:
//! never change one.

use crate::error::ErrorKind;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RequestKind {
    /// A reply.
    Call = 0,
    /// Nothing: the cell comes back when the request is taken.
    Send = 1,
    /// Replies one after the other.
    Stream = 2,
    /// The next one of them, in the cell of the stream.
    Next = 3,
    /// No further one, in the cell of the stream; the answer is its last.
    Stop = 4,
}

/// The payload lies in the first region, and in the cell how long it is.
pub(crate) const IN_REGION: u8 = 1;

/// How a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    /// Done, and the payload lies in the first region.
    InRegion,
    /// An item of a stream: more may follow.
    Item,
    /// The stream is over.
    End,
    /// The payload is a text.
    Failed(ErrorKind),
}

const FAILED: u32 = 0x100;
impl Status {
    pub(crate) fn number(self) -> u32 {
        match self {
            Status::Done => 0,
            Status::InRegion => 1,
            Status::Item => 2,
            Status::End => 3,
            Status::Failed(kind) => FAILED + u32::from(kind.number()),
        }
    }

    /// What the other side wrote; `None`: nothing that there is.
    pub(crate) fn of(number: u32) -> Option<Status> {
        Some(match number {
            0 => Status::Done,
            1 => Status::InRegion,
            2 => Status::Item,
            3 => Status::End,
            _ => Status::Failed(ErrorKind::of_number(
                u8::try_from(number.checked_sub(FAILED)?).ok()?,
            )?),
        })
    }
}

#[cfg(test)]
mod tests;
