//! `locked`: the conventional design with which P4 is compared.
//!
//! As in the paper, each VP has a Protect Queue and a Waiver Queue, and the owner inserts into both
//! without a lock. Removal from a Waiver Queue requires that queue's lock. A VP removes items when
//! it has nothing else to run, from other Waiver Queues or from its own. Items beyond the capacity
//! go to the Waiver Queue. If some VP idles and the Waiver Queue is empty, one item goes there in
//! any case.
//!
//! Three additions make the comparison fair:
//!
//! - An idle VP takes its whole fair share under one lock.
//! - A VP checks a Waiver Queue before locking it, and skips a queue whose lock stays held.
//! - The owner moves items that no VP takes back to its Protect Queue, a batch at every 16th
//!   switch, so that they do not starve.

use core::{cell::UnsafeCell, ptr::NonNull};

use super::capacity::{Capacity, Limit};
use super::peers::{Peer, Peers};
use crate::loom::{AtomicBool, Ordering, Padded, fence, spin_loop};
use crate::node::{self, Node, links};
use crate::part::injector::Injector;
use crate::part::protect_queue::ProtectQueue;
use crate::part::shared_side::{SharedSide, Stats};
use crate::part::waiver_queue::WaiverQueue;
use crate::run_queue::RunQueue;
use crate::run_queue::Taker;

/// Number of items that the owner takes back in one batch.
const BATCH: usize = 16;
/// Spins before a waiter gives up on a lock. The lock is held for tens of nanoseconds, unless its
/// holder lost the processor.
const PATIENCE: u32 = if cfg!(loom) { 2 } else { 256 };

/// Lock without checking first, under loom. Loom compares only the last access to an object; a
/// check immediately before the lock would hide the competing access of another thread.
const LOCK_UNSEEN: bool = cfg!(loom);

/// The lock for removal from one Waiver Queue.
pub struct RemovalLock(AtomicBool);

impl RemovalLock {
    /// Creates an unlocked lock.
    pub fn new() -> RemovalLock {
        RemovalLock(AtomicBool::new(false))
    }

    /// Acquires the lock after a short spin. Returns `None` if the holder does not release it in
    /// time. Calls `waited` if the first attempt fails.
    #[inline]
    pub fn lock(&self, waited: impl FnOnce()) -> Option<RemovalGuard<'_>> {
        if self.try_lock() {
            return Some(RemovalGuard(self));
        }
        waited();
        for _ in 0..PATIENCE {
            spin_loop();
            if !self.0.load(Ordering::Relaxed) && self.try_lock() {
                return Some(RemovalGuard(self));
            }
        }
        None
    }

    /// Returns whether the lock is held at the moment.
    fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire pairs with the Release in `RemovalGuard::drop`.
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl Default for RemovalLock {
    fn default() -> RemovalLock {
        RemovalLock::new()
    }
}

/// Guard of a held lock.
pub struct RemovalGuard<'a>(&'a RemovalLock);

impl Drop for RemovalGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

struct OwnerSide<T: Node> {
    protect: ProtectQueue<T>,
    /// Set if an item was put into this VP's Waiver Queue since that queue was last known to be
    /// empty.
    waived: bool,
    /// The ranks from the highest level in this VP's Waiver Queue upwards. If the Protect Queue has
    /// none of them, that item must run first. All ones if the Waiver Queue has no items; the same
    /// test then means that the Protect Queue is empty.
    guard: u64,
    limit: Limit,
    /// Exchanges until the next tick.
    ticks: u32,
    turn: usize,
}

/// One VP's queues in the `locked` design.
pub struct LockedQueue<T: Node> {
    own: UnsafeCell<OwnerSide<T>>,
    peers: Peers<LockedQueue<T>>,
    shared: SharedSide<T>,
    waiver: WaiverQueue<T>,
    lock: Padded<RemovalLock>,
}

// SAFETY: only the VP's carrier accesses `own` (contract of `Set::local`); the rest is safe to
// share.
unsafe impl<T: Node> Sync for LockedQueue<T> {}
// SAFETY: as above; the contract of `Node` covers the transfer of items.
unsafe impl<T: Node> Send for LockedQueue<T> {}

impl<T: Node> Peer<T> for LockedQueue<T> {
    fn shared(&self) -> &SharedSide<T> {
        &self.shared
    }
    fn on_the_way(&self) -> usize {
        self.waiver.len()
    }
}

impl<T: Node> LockedQueue<T> {
    pub(crate) fn new(vp: usize, n_vps: usize, rule: Capacity, places: usize) -> LockedQueue<T> {
        LockedQueue {
            own: UnsafeCell::new(OwnerSide {
                protect: ProtectQueue::new(vp),
                waived: false,
                guard: u64::MAX,
                limit: Limit::new(rule, n_vps),
                ticks: 1,
                turn: vp,
            }),
            peers: Peers::none(),
            shared: SharedSide::new(),
            waiver: WaiverQueue::new(places),
            lock: Padded(RemovalLock::new()),
        }
    }

    pub(crate) fn join(&mut self, peers: Peers<LockedQueue<T>>) {
        self.peers = peers;
    }

    /// Returns the owner's part.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    fn own(&self) -> &mut OwnerSide<T> {
        // SAFETY: only the VP's carrier calls the callers of this function (contract of
        // `Set::local`). Each operation calls it once, and none re-enters the queue while it has
        // the reference.
        unsafe { &mut *self.own.get() }
    }

    /// Moves up to `most` items of `from`, under its lock, to this VP's Protect Queue.
    fn remove_some(
        &self,
        from: &LockedQueue<T>,
        protect: &mut ProtectQueue<T>,
        most: usize,
    ) -> usize {
        let shown = &self.shared.shown;
        let Some(_held) = from.lock.lock(|| shown.lock_waits.add(1)) else {
            return 0;
        };
        shown.locks.add(1);
        // SAFETY: under the lock, this VP is the only consumer. The items already have places.
        unsafe { from.waiver.take(most, |item| protect.adopt(item, false)) }
    }

    /// Takes a batch back from this VP's own Waiver Queue.
    #[cold]
    fn reclaim(&self, own: &mut OwnerSide<T>) {
        if LOCK_UNSEEN || !self.waiver.is_empty() {
            self.remove_some(self, &mut own.protect, BATCH);
        }
        // Only this VP inserts, so an empty queue stays empty. Otherwise items of the same level
        // may remain.
        if self.waiver.is_empty() {
            own.waived = false;
            own.guard = u64::MAX;
        }
    }

    /// Takes batches back until the item that must run first is in the Protect Queue, the Waiver
    /// Queue is empty, or another VP holds its lock.
    fn reclaim_first(&self, own: &mut OwnerSide<T>) {
        while own.waived && own.protect.ranks() & own.guard == 0 {
            let before = own.protect.len();
            self.reclaim(own);
            if own.protect.len() == before {
                break;
            }
        }
    }

    #[cold]
    fn pop_slow(&self, own: &mut OwnerSide<T>) -> Option<(NonNull<T>, u8)> {
        self.reclaim_first(own);
        let next = own.protect.pop();
        if next.is_none() {
            self.shared.publish(0, 0);
        }
        next
    }

    #[cold]
    fn pop_at_least_slow(&self, own: &mut OwnerSide<T>, level: u8) -> Option<(NonNull<T>, u8)> {
        let high_enough = own.guard & !node::ranks_from(level) == 0;
        if high_enough {
            self.reclaim_first(own);
        }
        own.protect.pop_at_least(level)
    }

    #[cold]
    fn tick(&self, own: &mut OwnerSide<T>) {
        own.ticks = self.peers.period();
        if own.waived {
            self.reclaim(own);
        }
        self.shared.publish(own.protect.len() + 1, own.protect.levels());
        own.limit.renew(own.protect.len(), 1, &self.peers);
    }

    #[cold]
    fn surplus_slow(&self, own: &mut OwnerSide<T>, someone_idle: bool) -> Option<Taker> {
        let surplus = own.limit.renew(own.protect.len(), 1, &self.peers);
        let mut given = 0;
        let mut guard = own.guard;
        {
            // SAFETY: this VP is the only producer.
            let mut fill = unsafe { self.waiver.fill() };
            let want = surplus.min(fill.free());
            let began_empty = fill.began_empty();
            let mut put = |item| {
                // SAFETY: the item was just taken from the Protect Queue, so it is live and held by
                // this VP.
                guard &= node::ranks_from(unsafe { links(item) }.level());
                assert!(fill.push(item).is_ok(), "the batch is bounded by the free places");
            };
            if want > 0
                && let Some(level) = own.protect.lowest()
            {
                given = own.protect.give(level, want, &mut put);
            }
            if given == 0
                && someone_idle
                && began_empty
                && let Some(item) = own.protect.give_highest()
            {
                put(item);
                given = 1;
            }
        }
        own.guard = guard;
        own.waived |= given > 0;
        self.shared.publish(own.protect.len() + 1, own.protect.levels());
        own.limit.put_off(own.protect.len());
        if given == 0 {
            return None;
        }
        self.shared.shown.waiver_passes.add(1);
        // The caller next reads which VPs sleep; a VP that is about to sleep reads this queue. The
        // fences ensure that at least one of them sees the other's store.
        fence(Ordering::SeqCst);
        Some(Taker::Any)
    }
}

impl<T: Node> RunQueue<T> for LockedQueue<T> {
    #[inline]
    unsafe fn protect(&self) -> &mut ProtectQueue<T> {
        &mut self.own().protect
    }

    #[inline]
    fn pop(&self) -> Option<(NonNull<T>, u8)> {
        let own = self.own();
        if own.protect.ranks() & own.guard == 0 {
            return self.pop_slow(own);
        }
        own.protect.pop()
    }

    #[inline]
    fn pop_at_least(&self, level: u8) -> Option<(NonNull<T>, u8)> {
        let own = self.own();
        if own.protect.ranks() & own.guard & node::ranks_from(level) == 0 {
            return self.pop_at_least_slow(own, level);
        }
        own.protect.pop()
    }

    unsafe fn remove(&self, item: NonNull<T>) -> bool {
        let own = self.own();
        // SAFETY: the caller guarantees that the item is live.
        while own.waived && unsafe { !own.protect.holds(item) } {
            let before = own.protect.len();
            self.reclaim(own);
            if own.protect.len() == before {
                break;
            }
        }
        // SAFETY: upheld by the caller.
        unsafe { own.protect.remove(item) }
    }

    #[inline]
    fn exchange(&self) -> Option<Taker> {
        let own = self.own();
        own.ticks -= 1;
        if own.ticks == 0 {
            self.tick(own);
        }
        None
    }

    #[inline]
    fn surplus(&self, someone_idle: bool) -> Option<Taker> {
        let own = self.own();
        if own.protect.len() <= own.limit.queued && (!someone_idle || own.protect.is_empty()) {
            return None;
        }
        self.surplus_slow(own, someone_idle)
    }

    fn pull(&self) -> bool {
        let own = self.own();
        if own.waived {
            self.reclaim(own);
            if !own.protect.is_empty() {
                return true;
            }
        }
        own.turn = own.turn.wrapping_add(1);
        let share = own.limit.portion(&self.peers);
        let mut got = 0;
        for from in self.peers.others(own.turn) {
            if LOCK_UNSEEN || !from.waiver.is_empty() {
                got += self.remove_some(from, &mut own.protect, share - got);
                if got >= share {
                    break;
                }
            }
        }
        self.shared.shown.migrations.add(got);
        self.shared.publish(own.protect.len(), own.protect.levels());
        got > 0
    }

    fn has_visible_work(&self) -> bool {
        // Pairs with the fences of VPs that make work visible. The caller has announced before that
        // it is about to sleep.
        fence(Ordering::SeqCst);
        // The check includes this VP's own Waiver Queue. Items remain there after a pop of high
        // levels only, or after the lock was found held.
        !self.shared.injector.is_empty()
            || !self.waiver.is_empty()
            || self.peers.others(0).any(|q| !q.waiver.is_empty())
    }

    fn has_incoming(&self) -> bool {
        // As in `has_visible_work`.
        fence(Ordering::SeqCst);
        !self.shared.injector.is_empty() || !self.waiver.is_empty()
    }

    fn waiting(&self) -> Option<u8> {
        let own = self.own();
        let given =
            (own.waived && !self.waiver.is_empty()).then(|| own.guard.leading_zeros() as u8);
        own.protect.highest().max(given)
    }

    fn held(&self) -> Option<u8> {
        let own = self.own();
        let held = own.waived && self.lock.is_held() && !self.waiver.is_empty();
        held.then(|| own.guard.leading_zeros() as u8)
            .filter(|level| Some(*level) > own.protect.highest())
    }

    fn hand(&self, level: u8) -> Option<NonNull<T>> {
        let own = self.own();
        self.reclaim_first(own);
        own.protect.hand(level)
    }

    #[inline]
    fn injector(&self) -> &Injector<T> {
        &self.shared.injector
    }

    fn shown(&self) -> (usize, u64) {
        self.shared.shown()
    }

    fn stats(&self) -> Stats {
        self.shared.stats()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::any_queue::AnyQueue;
    use crate::node::{Origin, Place};
    use crate::run_queue::Design;
    use crate::set::Set;
    use crate::tests::Items;

    #[test]
    fn held_reports_items_that_another_vp_is_taking() {
        let items = Items::new(3);
        let set = Set::new(Design::Locked, 2, Capacity::Fixed(64));
        // SAFETY: one kernel thread acts as all carriers; each item is pushed while it is in no
        // queue.
        unsafe {
            let from = set.local(0);
            let AnyQueue::Locked(queue) = from.queue else { unreachable!() };
            for (item, level) in items.all().zip([3, 9]) {
                from.push(item, Place::back(level), Origin::Spawn);
            }
            assert_eq!(from.surplus(true), Some(Taker::Any));
            assert_eq!((from.held(), from.waiting()), (None, Some(9)));
            let thief = queue.lock.lock(|| ()).expect("open");
            assert_eq!((from.held(), from.waiting(), from.hand(9)), (Some(9), Some(9), None));
            // An item of the same level that is reachable.
            from.push(items.get(2), Place::back(9), Origin::Spawn);
            assert_eq!((from.held(), from.hand(9)), (None, Some(items.get(2))));
            drop(thief);
            assert_eq!((from.held(), from.hand(9)), (None, Some(items.get(1))));
            let _ = from.pop();
        }
    }
}
