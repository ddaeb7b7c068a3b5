//! Access to the board for higher crates. The first access makes this address space join the
//! machine.

use kumihimo_arbiter::row::Row;

use crate::process::board;
use crate::resource::membership;
use crate::scheduler::instance::{self, Instance};

/// Returns this address space's row, where others post notifications and wake its VPs.
#[must_use]
pub fn row() -> Row {
    let _ = membership::table();
    board::row()
}

/// Returns the board of this address space and its row there, or `None` if it is at no board.
#[must_use]
pub fn seat() -> Option<(u128, u32)> {
    let _ = membership::table();
    board::seat()
}

/// Returns the row of another address space, if it is at the same board.
#[must_use]
pub fn neighbour(board: u128, row: u32) -> Option<Row> {
    let _ = membership::table();
    board::neighbour(board, row)
}

/// Posts `bit` from inside this address space, and makes a VP check for it. Never blocks.
pub fn notify(bit: u32) {
    row().head.post(bit);
    instance::visit(|instance| instance.map(Instance::wake_one_idle));
}
