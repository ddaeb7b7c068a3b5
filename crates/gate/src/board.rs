//! Where this address space and others lie on the board that they share.

use kumihimo_runtime::board;

use crate::bell::Peer;
use crate::hello::Seat;

/// Where the other side is told to post for a link.
pub(crate) fn seat(bit: u32) -> Option<Seat> {
    let (board, row) = board::seat()?;
    Some(Seat { board, row, bit: bit as u8 })
}

/// Where to post for the other side, if it is on the same board.
pub(crate) fn peer(seat: Option<Seat>) -> Option<Peer> {
    let seat = seat?;
    let row = board::neighbour(seat.board, seat.row)?;
    Some(Peer { row, bit: seat.bit.into() })
}
