//! The board for the crates above: before its first use this address space takes its place on the
//! machine.

use kumihimo_arbiter::row::Row;

use crate::process::board;
use crate::resource::membership;
use crate::scheduler::instance::{self, Instance};

/// This address space's row: there others post, and call its virtual processors.
#[must_use]
pub fn row() -> Row {
    let _ = membership::table();
    board::row()
}

/// The board that this address space is at, and its row there; `None`: it is at none.
#[must_use]
pub fn seat() -> Option<(u128, u32)> {
    let _ = membership::table();
    board::seat()
}

/// The row of another address space, if it is at the same board.
#[must_use]
pub fn neighbour(board: u128, row: u32) -> Option<Row> {
    let _ = membership::table();
    board::neighbour(board, row)
}

/// Something was put where `bit` says, from inside this address space: posts it, and sees to it
/// that a virtual processor looks. Never blocks.
pub fn notify(bit: u32) {
    row().head.post(bit);
    instance::visit(|instance| instance.map(Instance::wake_one_idle));
}
