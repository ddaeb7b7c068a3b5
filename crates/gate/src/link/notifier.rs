//! Notifier: tells the other side of a link that the lane holds new entries.
//!
//! Where both sides are on the same board, it posts a bit in the other's row and rings its VPs: no
//! system call while one of them polls, one futex call if they sleep. Otherwise it sends a record
//! over the link's socket, and the other side's link poller wakes a VP: slower, but possible
//! between two users.

use std::sync::OnceLock;

use kumihimo_arbiter::row::{Caller, RingOutcome};

use crate::link::link_index;
use crate::link::socket::Link;
use crate::link::wake_address::PeerRow;
use crate::loom::{AtomicBool, Ordering, fence, remote_wake};
use crate::options::Placement;

/// Spin of `Placement::Spin`, in nanoseconds.
const SPIN_LONG: u64 = 1_000_000;
/// Spin for an answer from another core, in nanoseconds: about the cost of a sleep and a wake-up.
const SPIN_SHORT: u64 = 15_000;

pub(crate) struct Notifier {
    peer: Option<PeerRow>,
    placement: Placement,
    /// The link's bucket in the index.
    bucket: u32,
    pending: AtomicBool,
}

impl Notifier {
    pub(crate) fn new(peer: Option<PeerRow>, bucket: u32, placement: Placement) -> Notifier {
        Notifier { peer, placement, bucket, pending: AtomicBool::new(false) }
    }

    /// Whether both sides keep to their cores, so that a call finds the other side on the core that
    /// its caller leaves to it. Two sides that spin need two cores, and a thread that is woken
    /// anywhere keeps to none.
    pub(crate) fn keeps_to_cores(&self) -> bool {
        matches!(self.placement, Placement::Adaptive | Placement::Handoff)
    }

    /// Announces entries that were pushed into the lane. Never blocks.
    pub(crate) fn notify(&self, link: &OnceLock<Link>) {
        if let Some(peer) = self.peer {
            peer.row.head.post(peer.bit);
        }
        // Orders the push before the load of `pending`: a thread that clears it afterwards rings
        // afterwards.
        fence(Ordering::SeqCst);
        if self.pending.load(Ordering::Relaxed) || self.pending.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.placement != Placement::Scheduled {
            link_index::mark_pending(self.bucket);
            if remote_wake::defer_flush() {
                return;
            }
        }
        self.flush(remote_wake::core().map_or(Caller::Anywhere, Caller::Continues), link);
    }

    /// Rings the other side if entries were pushed since the last ring.
    pub(crate) fn flush(&self, caller: Caller, link: &OnceLock<Link>) {
        if !self.pending.load(Ordering::Relaxed) || !self.pending.swap(false, Ordering::AcqRel) {
            return;
        }
        let caller = if self.placement == Placement::Scheduled { Caller::Anywhere } else { caller };
        let rang = self.peer.map(|peer| peer.row.ring(caller, remote_wake::monotonic));
        if matches!(rang, None | Some(RingOutcome::Unreachable | RingOutcome::Busy))
            && let Some(link) = link.get()
        {
            link.ring();
        }
    }

    /// How long to spin on `core` for entries of the other side.
    pub(crate) fn expects(&self, core: u32) -> Option<u64> {
        match self.placement {
            Placement::Spin => Some(SPIN_LONG),
            Placement::Handoff | Placement::Scheduled => None,
            Placement::Adaptive => {
                let row = self.peer?.row;
                let is_up = row
                    .cells
                    .iter()
                    .any(|cell| !cell.is_sleeping() && cell.core().is_some_and(|at| at != core));
                is_up.then_some(SPIN_SHORT)
            }
        }
    }
}
