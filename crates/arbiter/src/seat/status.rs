//! State of a seat, for other threads of the address space.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::board::Board;
use crate::member::Member;
use crate::slot::{Slot, VpId};

/// State of a [`Seat`](super::Seat) that other threads of the address space may read at any time.
#[derive(Clone)]
pub struct SeatStatus {
    pub(super) member: Arc<Member>,
    pub(super) at: Option<Position>,
    pub(super) core: Arc<AtomicU16>,
}

impl SeatStatus {
    fn at(&self) -> Option<Position> {
        self.at.map(|at| Position { core: self.core.load(Ordering::Relaxed), ..at })
    }

    /// Returns whether the VP has the core, as [`Seat::is_mine`](super::Seat::is_mine).
    #[must_use]
    pub fn is_mine(&self) -> bool {
        self.member.others() == 0
            || self.at().is_none_or(|at| at.slot().load().holder() == Some(at.me))
    }

    /// Returns whether a running VP must take a step: another VP has the core, or a waiter requests
    /// an acknowledgement.
    #[must_use]
    pub fn is_to_step(&self) -> bool {
        !self.is_mine() || self.at().is_some_and(|at| at.slot().load().is_asked())
    }
}

impl std::fmt::Debug for SeatStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeatStatus").field("is_mine", &self.is_mine()).finish()
    }
}

/// Position of a seat: its VP, board and core.
#[derive(Clone, Copy)]
pub(super) struct Position {
    pub(super) board: &'static Board,
    pub(super) me: VpId,
    pub(super) core: u16,
    pub(super) only_one: bool,
}

impl Position {
    #[inline]
    pub(super) fn slot(&self) -> &'static Slot {
        &self.board.layout().slots[usize::from(self.core)]
    }
}
