//! Wake addresses: where the two sides of a link post for each other on the board that they share.

use kumihimo_arbiter::row::Row;
use kumihimo_runtime::board;

use crate::handshake::record::WakeAddress;

/// The row in which the other side polls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerRow {
    /// Its row, on the board of both sides.
    pub(crate) row: Row,
    /// The bit of this link in the row.
    pub(crate) bit: u32,
}

/// The address at which the other side posts for a link of this address space.
pub(crate) fn own(bit: u32) -> Option<WakeAddress> {
    let (board, row) = board::seat()?;
    Some(WakeAddress { board, row, bit: bit as u8 })
}

/// The row of the other side, if it is on the same board.
pub(crate) fn peer(wake_address: Option<WakeAddress>) -> Option<PeerRow> {
    let wake_address = wake_address?;
    let row = board::neighbour(wake_address.board, wake_address.row)?;
    Some(PeerRow { row, bit: wake_address.bit.into() })
}
