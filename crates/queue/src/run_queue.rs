//! Interface of one VP's run queue, common to all designs.

use core::ptr::NonNull;

use crate::node::{self, Node, Origin, Place};
use crate::part::injector::Injector;
use crate::part::protect_queue::ProtectQueue;
use crate::part::shared_side::Stats;

/// The designs of run queues.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{DEFAULT_DESIGN, Design, Runtime, metrics};
///
/// assert_eq!(DEFAULT_DESIGN, Design::Ring);
/// for design in Design::ALL {
///     let runtime = Runtime::builder().queue(design).build()?;
///     assert_eq!(runtime.run(|| metrics().unwrap().queue), design.name());
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Design {
    /// P4: Protect and Waiver Queues in a ring, no locks.
    Ring,
    /// P4's conventional design: items leave a Waiver Queue under a lock.
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
    /// All designs of this build; a single one without the feature `lab`.
    #[cfg(not(feature = "lab"))]
    pub const ALL: [Design; 1] = [Design::Ring];

    /// Returns the name used on command lines.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Design;
    ///
    /// assert_eq!(Design::Ring.name(), "ring");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Design::Ring => "ring",
            #[cfg(feature = "lab")]
            Design::Locked => "locked",
            #[cfg(feature = "lab")]
            Design::Steal => "steal",
        }
    }

    /// Returns whether other threads take items directly from an owner's queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Design;
    ///
    /// // In the ring, the owner of a queue passes surplus on.
    /// assert!(!Design::Ring.has_thieves());
    /// ```
    pub const fn has_thieves(self) -> bool {
        match self {
            Design::Ring => false,
            #[cfg(feature = "lab")]
            Design::Locked => false,
            #[cfg(feature = "lab")]
            Design::Steal => true,
        }
    }

    /// Returns the design with this name, if this build contains it.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Design;
    ///
    /// assert_eq!(Design::from_name("ring"), Some(Design::Ring));
    /// assert_eq!(Design::from_name("heap"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Design> {
        Design::ALL.into_iter().find(|d| d.name() == name)
    }
}

/// The VPs that can take an item that has just become visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// This VP only.
    Vp(usize),
    /// Any idle VP.
    Any,
}

/// One VP's run queue. All functions except `has_visible_work`, `injector`, `shown` and `stats` are
/// for the owner only (see [`Set::local`](crate::Set::local)).
///
/// The provided methods suit a design whose owner takes items only from its Protect Queue.
pub trait RunQueue<T: Node> {
    /// Returns the owner's Protect Queue.
    ///
    /// # Safety
    /// Only the VP's carrier calls this function. The reference ends before the carrier's next call
    /// of any method of this trait.
    #[allow(clippy::mut_from_ref)]
    unsafe fn protect(&self) -> &mut ProtectQueue<T>;
    /// Queues an item.
    ///
    /// # Safety
    /// `item` is live while it is queued, is held by the caller, and is in no queue. Its context
    /// has been left, because another VP may run it at once.
    #[inline]
    unsafe fn push(&self, item: NonNull<T>, place: Place, origin: Origin) {
        // SAFETY: the caller is the owner, and upholds the requirements of `ProtectQueue::push`.
        unsafe { self.protect().push(item, place, origin) }
    }
    /// Takes the next item of the highest level, and returns it with its level.
    fn pop(&self) -> Option<(NonNull<T>, u8)>;
    /// Does the same as `pop`, but only for levels from `level` upwards.
    fn pop_at_least(&self, level: u8) -> Option<(NonNull<T>, u8)>;
    /// Removes this item. Takes back items in the surplus slot, or given away and still reachable,
    /// if that is necessary. Returns `false` and leaves the item if it is not queued here or not
    /// reachable: in `ring`, it is in the Waiver Queue; in `steal`, its level has more than 1,024
    /// items.
    ///
    /// # Safety
    /// `item` is live. It need not be in this queue.
    unsafe fn remove(&self, item: NonNull<T>) -> bool;
    /// Exchanges items at a context switch. `ring` takes the items that the neighbour gave away,
    /// and passes its own surplus on.
    #[must_use]
    fn exchange(&self) -> Option<Taker>;
    /// Gives surplus away if the capacity rule requires it, or if `someone_idle`. Items of
    /// [`Origin::Wake`] stay; in `steal`, other VPs may take them nevertheless.
    #[must_use]
    fn surplus(&self, someone_idle: bool) -> Option<Taker>;
    /// Moves other VPs' surplus, and this VP's own item from the surplus slot, into this queue. For
    /// an idle VP. If it returns `true`, `pop` will most likely return an item.
    fn pull(&self) -> bool;
    /// Returns whether `pull` or the injector can provide an item. An idle VP calls this after it
    /// has announced that it sleeps, and before it sleeps.
    fn has_visible_work(&self) -> bool;
    /// Returns whether an item waits in a place other than the Protect Queue from which only this
    /// VP can take it, or which this VP has offered. A retired VP takes nothing else. It calls this
    /// after it has announced its sleep, as with `has_visible_work`.
    fn has_incoming(&self) -> bool;
    /// Returns the number of queued items that the owner can pop without a race; in `steal`, also
    /// those in the deques.
    #[inline]
    fn len(&self) -> usize {
        // SAFETY: the caller is the owner (contract of `Set::local`).
        unsafe { self.protect() }.len()
    }
    /// Returns whether `len` is 0.
    fn is_empty(&self) -> bool {
        self.levels() == 0
    }
    /// Returns a bitmap of levels: bit n is set if level n has an item (`steal`: may have one).
    #[inline]
    fn levels(&self) -> u64 {
        // SAFETY: the caller is the owner (contract of `Set::local`).
        unsafe { self.protect() }.levels()
    }
    /// Returns whether a level above `level` has an item (`steal`: may have one). Cheaper than
    /// `levels`.
    #[inline]
    fn has_above(&self, level: u8) -> bool {
        // SAFETY: the caller is the owner (contract of `Set::local`).
        unsafe { self.protect() }.ranks() & node::ranks_above(level) != 0
    }
    /// Returns the item that `pop` would take next if that is cheap to determine; for prefetching.
    #[inline]
    fn peek(&self) -> Option<NonNull<T>> {
        // SAFETY: the caller is the owner (contract of `Set::local`).
        unsafe { self.protect() }.peek()
    }
    /// Returns the smallest key of the items on `level` that only the owner takes; `None` if none
    /// of them has a key.
    fn first_key(&self, level: u8) -> Option<u64> {
        // SAFETY: the caller is the owner (contract of `Set::local`).
        unsafe { self.protect() }.first_key(level)
    }
    /// Allows the next item to be given away, even if it is of [`Origin::Wake`].
    fn loosen(&self) {
        // SAFETY: the caller is the owner (contract of `Set::local`).
        unsafe { self.protect() }.loosen()
    }
    /// Returns the highest level of all waiting items, including those given away and not yet
    /// taken. In `steal`, the item may already be taken.
    fn waiting(&self) -> Option<u8>;
    /// Takes the next item if its level is at least `level`, for another VP to
    /// [`adopt`](RunQueue::adopt). The item keeps its place.
    fn hand(&self, level: u8) -> Option<NonNull<T>>;
    /// Queues an item that another VP took by [`hand`](RunQueue::hand), at the place that it kept.
    ///
    /// # Safety
    /// Same requirements as [`push`](RunQueue::push); the item comes from `hand`.
    unsafe fn adopt(&self, item: NonNull<T>) {
        // SAFETY: the caller is the owner, and upholds the requirements of `ProtectQueue::adopt`.
        unsafe { self.protect().adopt(item, false) }
    }
    /// Returns the only VP that can take the items given away, and their level; `None` if there are
    /// none.
    fn given(&self) -> Option<(usize, u8)> {
        None
    }
    /// Returns the level of items that were given away and that another VP is about to take, which
    /// excludes all other VPs meanwhile. `None` if an item of the same or a higher level is queued
    /// here.
    fn held(&self) -> Option<u8> {
        None
    }
    /// Returns the injector, by which other threads pass items to this VP.
    fn injector(&self) -> &Injector<T>;
    /// Returns the published number of runnable items, including the running one, and the bitmap of
    /// levels. Published at about every 16th exchange and while the VP idles.
    fn shown(&self) -> (usize, u64);
    /// Returns the counters.
    fn stats(&self) -> Stats;
}
