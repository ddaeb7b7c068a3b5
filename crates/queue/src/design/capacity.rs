//! Capacity rule: how many items a VP keeps before it gives items away.

use super::peers::{Peer, Peers};
use crate::node::Node;

/// How many items a VP keeps. The remaining items are its *surplus*, which other VPs may take.
///
/// The running item counts as one of the VP's items.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{Capacity, Runtime};
/// use kumihimo::thread;
///
/// assert_eq!(Capacity::default(), Capacity::FairShare { slack: 1 });
/// let runtime = Runtime::builder().vps(2).capacity(Capacity::FairShare { slack: 4 }).build()?;
/// assert_eq!(runtime.run(|| thread::spawn(|| 7).join().unwrap()), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// A fixed number of queued items, as in the paper. 0 is treated as 1, so that the VP has an
    /// item to switch to.
    Fixed(usize),
    /// A fair share of all runnable items, computed from the published and therefore slightly
    /// outdated loads of all VPs. With `total` items and `n` VPs, the share is `total / n`, plus
    /// one for the first `total % n` VPs, and at least one.
    ///
    /// A VP with more items than its share plus `slack` gives away the items beyond its share. The
    /// slack prevents items from moving whenever the number of runnable items changes by one. The
    /// exact shares let the ring come to rest with an even distribution.
    FairShare {
        /// Number of items above the share that do not yet cause a move.
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
    /// Number of queued items up to which the rule need not be evaluated.
    pub(crate) queued: usize,
}

impl Limit {
    pub(crate) fn new(rule: Capacity, n_vps: usize) -> Limit {
        // A single VP never has surplus.
        Limit { rule, queued: if n_vps == 1 { usize::MAX } else { 0 } }
    }

    /// Raises the limit by an eighth because the present surplus cannot leave now. The rule is next
    /// evaluated at the next tick, or when the queue exceeds the raised limit. Otherwise a parent
    /// that spawns a hundred thousand items would read the loads of all VPs at each spawn.
    pub(crate) fn put_off(&mut self, queued: usize) {
        if queued > self.queued {
            self.queued = queued.saturating_add(queued / 8);
        }
    }

    /// Returns how many items a VP without items should get.
    #[cfg(feature = "lab")]
    pub(crate) fn portion<T: Node, Q: Peer<T>>(&self, peers: &Peers<Q>) -> usize {
        match self.rule {
            Capacity::Fixed(n) => n.max(1),
            Capacity::FairShare { .. } => peers.share(0),
        }
    }

    /// Evaluates the rule from the loads of all VPs. Returns how many of `queued` items are surplus
    /// if `running` others (0 or 1) run on this VP and stay.
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
            // The share includes the running item and is at least one.
            Capacity::FairShare { slack } => (peers.share(queued + running) - running, slack),
        };
        self.queued = keep.saturating_add(slack);
        if queued > self.queued { queued - keep } else { 0 }
    }
}
