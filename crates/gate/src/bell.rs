//! How the other side of a link learns that something lies in the lane.
//!
//! On the same board its row is there to be posted in, and its virtual processors to be called: no
//! system call while one of them looks, one futex if they sleep. Else the socket carries a record,
//! which the porter of the other side turns into a wake-up: dearer, and all that two users have in
//! common.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use kumihimo_arbiter::row::{Caller, Rang, Row};
use kumihimo_runtime::remote_wake;

use crate::link::Link;
use crate::looks;
use crate::options::Placement;

/// Where the other side looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its row, on the board of both.
    pub(crate) row: Row,
    /// The bit that it looks for.
    pub(crate) bit: u32,
}

/// How long a side spins that is told to.
const LONG: u64 = 1_000_000;
/// How long one spins for an answer from another core: about what a sleep and a wake-up cost.
const SHORT: u64 = 15_000;

pub(crate) struct Bell {
    peer: Option<Peer>,
    placement: Placement,
    /// The bucket that this side stands in.
    own: u32,
    untold: AtomicBool,
}

impl Bell {
    pub(crate) fn new(peer: Option<Peer>, own: u32, placement: Placement) -> Bell {
        Bell { peer, placement, own, untold: AtomicBool::new(false) }
    }

    /// Whether a call finds the other side on the core that the caller leaves to it only if neither
    /// side moves. Two that spin want two cores, and a thread that is woken anywhere keeps to none.
    pub(crate) fn keeps_to_cores(&self) -> bool {
        matches!(self.placement, Placement::Adaptive | Placement::Handoff)
    }

    /// Something lies in the lane. Never blocks.
    pub(crate) fn pushed(&self, link: &OnceLock<Link>) {
        if let Some(peer) = self.peer {
            peer.row.head.post(peer.bit);
        }
        // The push, then the look whether it was told: a thread that clears this afterwards rings
        // afterwards.
        fence(Ordering::SeqCst);
        if self.untold.load(Ordering::Relaxed) || self.untold.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.placement != Placement::Scheduled {
            looks::note_untold(self.own);
            if remote_wake::defer_flush() {
                return;
            }
        }
        self.tell(remote_wake::core().map_or(Caller::Anywhere, Caller::GoesOn), link);
    }

    /// Rings if something was pushed since the last time.
    pub(crate) fn tell(&self, caller: Caller, link: &OnceLock<Link>) {
        if !self.untold.load(Ordering::Relaxed) || !self.untold.swap(false, Ordering::AcqRel) {
            return;
        }
        let caller = if self.placement == Placement::Scheduled { Caller::Anywhere } else { caller };
        let rang = self.peer.map(|peer| peer.row.ring(caller, remote_wake::monotonic));
        if matches!(rang, None | Some(Rang::Unreachable | Rang::Busy))
            && let Some(link) = link.get()
        {
            link.ring();
        }
    }

    /// How long to spin on `core` for what the other side may send.
    pub(crate) fn expects(&self, core: u32) -> Option<u64> {
        match self.placement {
            Placement::Spin => Some(LONG),
            Placement::Handoff | Placement::Scheduled => None,
            Placement::Adaptive => {
                let row = self.peer?.row;
                let is_up = row
                    .cells
                    .iter()
                    .any(|cell| !cell.is_sleeping() && cell.core().is_some_and(|at| at != core));
                is_up.then_some(SHORT)
            }
        }
    }
}
