//! Wake addresses: where the two sides of a link post for each other on the board that they share.

use kumihimo_runtime::board;

use crate::handshake::record::WakeAddress;
use crate::notifier::PeerRow;

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
