//! The run queue of one VP, whatever its design.

use core::ptr::NonNull;

use crate::node::{self, Node, Origin, Place};
use crate::part::injector::Injector;
use crate::part::protect_queue::ProtectQueue;
use crate::part::shared_side::Stats;

/// Which design of run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Design {
    /// P4: Protect and Waiver Queues in a ring, no locks.
    Ring,
    /// P4's conventional design: removal from Waiver Queues under a lock.
    #[cfg(feature = "lab")]
    Locked,
    /// Work stealing.
    #[cfg(feature = "lab")]
    Steal,
}

impl Design {
    /// All designs of this build.
    #[cfg(feature = "lab")]
    pub const ALL: [Design; 3] = [Design::Ring, Design::Locked, Design::Steal];
    /// All designs of this build: without the feature `lab`, one.
    #[cfg(not(feature = "lab"))]
    pub const ALL: [Design; 1] = [Design::Ring];

    /// As written on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Design::Ring => "ring",
            #[cfg(feature = "lab")]
            Design::Locked => "locked",
            #[cfg(feature = "lab")]
            Design::Steal => "steal",
        }
    }

    /// Whether other threads take items straight out of an owner's queue.
    pub const fn has_thieves(self) -> bool {
        match self {
            Design::Ring => false,
            #[cfg(feature = "lab")]
            Design::Locked => false,
            #[cfg(feature = "lab")]
            Design::Steal => true,
        }
    }

    /// The design of that name, if this build has it.
    pub fn from_name(name: &str) -> Option<Design> {
        Design::ALL.into_iter().find(|d| d.name() == name)
    }
}

/// The VPs that can take what has just become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// This VP only.
    Vp(usize),
    /// Any idle VP.
    Any,
}

/// One VP's run queue, as its owner uses it. All but `has_visible_work`, `injector`, `shown` and
/// `stats` are for the owner only (see [`Set::local`](crate::Set::local)).
///
/// The provided methods are those of a design whose owner takes items from its Protect Queue alone.
pub trait RunQueue<T: Node> {
    /// Returns the owner's Protect Queue.
    ///
    /// # Safety
    /// Only the VP's carrier may call this, and the reference ends before its next call of any
    /// method here.
    #[allow(clippy::mut_from_ref)]
    unsafe fn protect(&self) -> &mut ProtectQueue<T>;
    /// Queues an item here.
    ///
    /// # Safety
    /// `item` is live and stays so while it is queued; the caller holds it; it is in no queue. Its
    /// context has been left: others may run it at once.
    #[inline]
    unsafe fn push(&self, item: NonNull<T>, place: Place, origin: Origin) {
        // SAFETY: the caller is the owner, and has promised what `ProtectQueue::push` asks for.
        unsafe { self.protect().push(item, place, origin) }
    }
    /// Takes the next item and its level: the highest level first.
    fn pop(&self) -> Option<(NonNull<T>, u8)>;
    /// As `pop`, but only from this level upwards.
    fn pop_at_least(&self, level: u8) -> Option<(NonNull<T>, u8)>;
    /// Takes this item out; what is on offer, or given away and within reach, is taken back for
    /// that. `false`: it is not here, or not within reach of the owner (in `ring`'s Waiver Queue;
    /// or, in `steal`, behind more than 1,024 others of its level), and stays where it is.
    ///
    /// # Safety
    /// `item` is live. It may be anywhere.
    unsafe fn remove(&self, item: NonNull<T>) -> bool;
    /// What happens at a context switch besides: `ring` takes over what the neighbour gave away and
    /// passes on what is too much.
    #[must_use]
    fn exchange(&self) -> Option<Taker>;
    /// Gives surplus away if the capacity rule says so, or if `someone_idle`. Items of
    /// [`Origin::Wake`] stay (`steal`: thieves take them all the same).
    #[must_use]
    fn surplus(&self, someone_idle: bool) -> Option<Taker>;
    /// An idle VP tries to get others' surplus into its own queue, and what it has itself on offer
    /// back. `true`: `pop` will most likely find something.
    fn pull(&self) -> bool;
    /// Whether there is anything that this VP could get: by `pull` or from its injector. What an
    /// idle VP asks after it has said that it sleeps, and before it does.
    fn has_visible_work(&self) -> bool;
    /// Items queued here that the owner can pop without a race (`steal`: those in the deques too).
    #[inline]
    fn len(&self) -> usize {
        // SAFETY: the caller is the owner (contract of `Set::local`).
        unsafe { self.protect() }.len()
    }
    /// Whether `len` is 0.
    fn is_empty(&self) -> bool {
        self.levels() == 0
    }
    /// Bit n: level n has an item (`steal`: may have).
    #[inline]
    fn levels(&self) -> u64 {
        // SAFETY: the caller is the owner (contract of `Set::local`).
        unsafe { self.protect() }.levels()
    }
    /// Whether a level above this one has an item (`steal`: may have). Cheaper than `levels`.
    #[inline]
    fn has_above(&self, level: u8) -> bool {
        // SAFETY: the caller is the owner (contract of `Set::local`).
        unsafe { self.protect() }.ranks() & node::ranks_above(level) != 0
    }
    /// The item that `pop` would take next, if that is cheap to know: for prefetching.
    #[inline]
    fn peek(&self) -> Option<NonNull<T>> {
        // SAFETY: the caller is the owner (contract of `Set::local`).
        unsafe { self.protect() }.peek()
    }
    /// The item that is next to run may be given away, even if it is of [`Origin::Wake`].
    fn loosen(&self) {
        // SAFETY: the caller is the owner (contract of `Set::local`).
        unsafe { self.protect() }.loosen()
    }
    /// The highest level of what waits here, what was given away and not yet taken included
    /// (`steal`: may say so although thieves took it).
    fn waiting(&self) -> Option<u8>;
    /// Takes the item that is next to run, if it is of at least this level, for another VP to
    /// [`adopt`](RunQueue::adopt): it keeps its place.
    fn hand(&self, level: u8) -> Option<NonNull<T>>;
    /// Queues, by the place that it still has, what another VP has [`hand`](RunQueue::hand)ed over.
    ///
    /// # Safety
    /// As [`push`](RunQueue::push); and the item came from `hand`.
    unsafe fn adopt(&self, item: NonNull<T>) {
        // SAFETY: the caller is the owner, and has promised what `ProtectQueue::adopt` asks for.
        unsafe { self.protect().adopt(item, false) }
    }
    /// What was given away and only the VP `.0` can take: its level.
    fn given(&self) -> Option<(usize, u8)> {
        None
    }
    /// What was given away and a VP is about to take, which keeps all others from it meanwhile: its
    /// level, if nothing as high waits here besides.
    fn held(&self) -> Option<u8> {
        None
    }
    /// Where others put items for this VP.
    fn injector(&self) -> &Injector<T>;
    /// Runnable items here, the running one included, and bitmap of levels, as last published: at
    /// every 16th exchange, or when it idled.
    fn shown(&self) -> (usize, u64);
    /// Counters.
    fn stats(&self) -> Stats;
}
