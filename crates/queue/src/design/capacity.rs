//! The capacity rule: how many items a VP keeps before it gives away.

use super::peers::{Peer, Peers};
use crate::node::Node;

/// How many items a VP keeps for itself; the rest is *surplus*, for others.
///
/// The running item counts as one of the VP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// A fixed number of queued items, as in the paper. 0 is taken as 1: a VP keeps something to
    /// switch to.
    Fixed(usize),
    /// A fair share of all runnable items, computed from what every VP says it has (so: from
    /// slightly old numbers). With `total` items and `n` VPs, VP i's share is `total / n`, plus one
    /// for the first `total % n` VPs, and at least one. A VP that has more than its share plus
    /// `slack` gives away what exceeds its share. The slack is what keeps items from wandering when
    /// one more or less is runnable; the exact shares are what lets the ring come to rest evenly.
    FairShare {
        /// Items above the share that start no move.
        slack: usize,
    },
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity::FairShare { slack: 1 }
    }
}

/// A VP's view of the capacity rule.
pub(crate) struct Limit {
    rule: Capacity,
    /// Queued items up to which nothing has to be looked at.
    pub(crate) queued: usize,
}

impl Limit {
    pub(crate) fn new(rule: Capacity, n_vps: usize) -> Limit {
        // Alone, nothing is ever surplus.
        Limit { rule, queued: if n_vps == 1 { usize::MAX } else { 0 } }
    }

    /// What is surplus cannot go now: do not look again before the next tick, or before there is an
    /// eighth more of it. (A parent that spawns a hundred thousand would look at all VPs each
    /// time.)
    pub(crate) fn put_off(&mut self, queued: usize) {
        if queued > self.queued {
            self.queued = queued.saturating_add(queued / 8);
        }
    }

    /// How many items a VP that has none should get.
    #[cfg(feature = "lab")]
    pub(crate) fn portion<T: Node, Q: Peer<T>>(&self, peers: &Peers<Q>) -> usize {
        match self.rule {
            Capacity::Fixed(n) => n.max(1),
            Capacity::FairShare { .. } => peers.share(0),
        }
    }

    /// Looks at all VPs again. Returns how many of `queued` items are surplus, given that `running`
    /// others (0 or 1) run here and stay.
    pub(crate) fn renew<T: Node, Q: Peer<T>>(
        &mut self,
        queued: usize,
        running: usize,
        peers: &Peers<Q>,
    ) -> usize {
        if peers.count() == 1 {
            return 0;
        }
        let (keep, slack) = match self.rule {
            Capacity::Fixed(n) => (n.max(1), 0),
            // At least one item is left to run in any case.
            Capacity::FairShare { slack } => (peers.share(queued + running) - running, slack),
        };
        self.queued = keep.saturating_add(slack);
        if queued > self.queued { queued - keep } else { 0 }
    }
}
