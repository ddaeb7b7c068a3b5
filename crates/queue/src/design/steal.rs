//! `steal`: work stealing with Chase-Lev deques, one per level, created when the level is first
//! used.
//!
//! Other VPs can steal queued items at any time, including woken ones. Both the owner and other VPs
//! take items first in, first out. The local priority order is exact: a bitmap finds the highest
//! level. A deque supports neither order by key nor insertion at its front. Such items are in a
//! Protect Queue, which precedes their level's deque; they leave it only through the surplus slot
//! while some VP idles.

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    ptr::{NonNull, null_mut},
};

use super::capacity::Capacity;
use super::peers::{Peer, Peers};
use crate::loom::{AtomicPtr, AtomicU64, Ordering, Padded, fence};
use crate::node::Origin;
use crate::node::Place;
use crate::node::{self, LEVELS, Node, links};
use crate::part::deque::{Deque, Stolen};
use crate::part::injector::Injector;
use crate::part::protect_queue::ProtectQueue;
use crate::part::shared_side::{SharedSide, Stats};
use crate::run_queue::RunQueue;
use crate::run_queue::Taker;

/// Length of the longest level that `remove` searches.
const SEARCH: usize = 1024;

struct OwnerSide<T: Node> {
    /// Items with a key or for the front of a level; served before the deque of their level.
    protect: ProtectQueue<T>,
    /// Bit r: the deque of rank r may have an item.
    bits: u64,
    /// See `ring`.
    offered: bool,
    guard: u64,
    stale_offer: bool,
    /// Set if an item was pushed since `surplus` last returned a taker.
    fresh: bool,
    ticks: u32,
    turn: usize,
}

/// One VP's queues in the `steal` design.
pub struct StealQueue<T: Node> {
    own: UnsafeCell<OwnerSide<T>>,
    peers: Peers<StealQueue<T>>,
    shared: SharedSide<T>,
    /// A copy of `OwnerSide::bits` for other VPs.
    bits: Padded<AtomicU64>,
    /// Indexed by rank; null until the owner creates the deque at its first use.
    deques: Box<[AtomicPtr<Deque<T>>; LEVELS]>,
}

// SAFETY: only the VP's carrier accesses `own` (contract of `Set::local`); the rest is safe to
// share.
unsafe impl<T: Node> Sync for StealQueue<T> {}
// SAFETY: as above; the contract of `Node` covers the transfer of items.
unsafe impl<T: Node> Send for StealQueue<T> {}

impl<T: Node> Peer<T> for StealQueue<T> {
    fn shared(&self) -> &SharedSide<T> {
        &self.shared
    }
    fn on_the_way(&self) -> usize {
        0
    }
}

impl<T: Node> Drop for StealQueue<T> {
    fn drop(&mut self) {
        for deque in self.deques.iter_mut() {
            let deque = *deque.get_mut();
            if !deque.is_null() {
                // SAFETY: `open` created it by `Box::into_raw`, and no other thread uses it any
                // more.
                drop(unsafe { Box::from_raw(deque) });
            }
        }
    }
}

impl<T: Node> StealQueue<T> {
    pub(crate) fn new(vp: usize, _rule: Capacity) -> StealQueue<T> {
        StealQueue {
            own: UnsafeCell::new(OwnerSide {
                protect: ProtectQueue::new(vp),
                bits: 0,
                offered: false,
                guard: u64::MAX,
                stale_offer: false,
                fresh: false,
                ticks: 0,
                turn: vp,
            }),
            peers: Peers::none(),
            shared: SharedSide::new(),
            bits: Padded(AtomicU64::new(0)),
            deques: Box::new([const { AtomicPtr::new(null_mut()) }; LEVELS]),
        }
    }

    pub(crate) fn join(&mut self, peers: Peers<StealQueue<T>>) {
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

    /// Returns the deque of a rank, if it was ever used.
    #[inline]
    fn deque(&self, rank: usize) -> Option<&Deque<T>> {
        // Acquire pairs with the Release in `open`.
        // SAFETY: the pointer is null, or `open` created it and it lives as long as this queue.
        unsafe { self.deques[rank].load(Ordering::Acquire).as_ref() }
    }

    /// Returns the deque of a rank, and creates it if necessary. Only for the owner.
    #[inline]
    fn own_deque(&self, rank: usize) -> &Deque<T> {
        self.deque(rank).unwrap_or_else(|| self.open(rank))
    }

    #[cold]
    fn open(&self, rank: usize) -> &Deque<T> {
        let deque = Box::into_raw(Box::new(Deque::new()));
        // Release: other VPs that load the pointer see an initialised deque.
        self.deques[rank].store(deque, Ordering::Release);
        // SAFETY: as in `deque`.
        unsafe { &*deque }
    }

    #[inline]
    fn append(&self, own: &mut OwnerSide<T>, item: NonNull<T>, rank: usize) {
        // SAFETY: called by the owner.
        unsafe { self.own_deque(rank).push(item) };
        own.fresh = true;
        if own.bits >> rank & 1 == 0 {
            own.bits |= 1 << rank;
            self.bits.store(own.bits, Ordering::Release);
        }
    }

    /// Takes the next item of the levels in `mask`.
    #[inline]
    fn take(&self, own: &mut OwnerSide<T>, mask: u64) -> Option<(NonNull<T>, u8)> {
        loop {
            let kept = own.protect.ranks();
            let all = own.bits | kept;
            if all & own.guard & mask == 0 {
                // No item ranks above the item in the surplus slot, or no item is queued.
                if own.offered && own.guard & !mask == 0 && all & own.guard == 0 {
                    self.reclaim(own, true);
                    continue;
                }
                if all & mask == 0 {
                    return None;
                }
            }
            let rank = all.trailing_zeros() as usize;
            if kept >> rank & 1 != 0 {
                return own.protect.pop();
            }
            if let Some(item) = self.deque(rank).and_then(Deque::pop) {
                return Some((item, node::level(rank)));
            }
            self.ran_dry(own, rank);
        }
    }

    #[cold]
    fn ran_dry(&self, own: &mut OwnerSide<T>, rank: usize) {
        own.bits &= !(1 << rank);
        self.bits.store(own.bits, Ordering::Relaxed);
    }

    #[cold]
    fn reclaim(&self, own: &mut OwnerSide<T>, front: bool) {
        own.offered = false;
        own.guard = u64::MAX;
        own.stale_offer = false;
        if let Some(item) = self.shared.offer.take() {
            self.shared.shown.offers_back.add(1);
            // SAFETY: the item was taken from the surplus slot, so this VP holds it.
            unsafe { own.protect.adopt(item, front) };
        }
    }

    fn levels_of(own: &OwnerSide<T>) -> u64 {
        (own.bits | own.protect.ranks()).reverse_bits()
    }

    fn queued(&self, own: &OwnerSide<T>) -> usize {
        let mut bits = own.bits;
        let mut n = own.protect.len();
        while bits != 0 {
            let rank = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            n += self.deque(rank).map_or(0, Deque::len);
        }
        n
    }

    #[cold]
    fn tick(&self, own: &mut OwnerSide<T>) {
        self.shared.publish(self.queued(own) + 1, Self::levels_of(own));
        if own.offered {
            if own.stale_offer {
                self.reclaim(own, false);
            } else {
                own.stale_offer = true;
            }
        }
    }

    #[cold]
    fn surplus_slow(&self, own: &mut OwnerSide<T>) -> Option<Taker> {
        if own.bits == 0 && self.shared.offer.is_empty() {
            if let Some(item) = own.protect.give_highest() {
                // SAFETY: the item is live, in no queue, and held by this VP.
                own.guard = node::ranks_from(unsafe { links(item) }.level());
                own.offered = true;
                own.stale_offer = false;
                // SAFETY: the slot belongs to this VP and is empty.
                unsafe { self.shared.offer.put(item) };
                self.shared.shown.offers.add(1);
            }
        } else if !own.fresh {
            return None;
        }
        own.fresh = false;
        self.shared.publish(self.queued(own) + 1, Self::levels_of(own));
        // The caller next reads which VPs sleep; a VP that is about to sleep reads this queue. The
        // fences ensure that at least one of them sees the other's store.
        fence(Ordering::SeqCst);
        (own.bits != 0 || own.offered).then_some(Taker::Any)
    }

    /// Steals from the highest level of `from`, and returns the number of items.
    fn steal(&self, own: &mut OwnerSide<T>, from: &StealQueue<T>) -> usize {
        // Acquire: the deques of these levels are initialised.
        let mut bits = from.bits.load(Ordering::Acquire);
        while bits != 0 {
            let rank = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let Some(deque) = from.deque(rank) else { continue };
            loop {
                // SAFETY: the target deque belongs to this VP, and a VP does not steal from itself.
                match unsafe { deque.steal(self.own_deque(rank)) } {
                    Stolen::Some(count) => {
                        own.bits |= 1 << rank;
                        own.fresh = true;
                        self.bits.store(own.bits, Ordering::Release);
                        return count;
                    }
                    Stolen::Nothing => break,
                    Stolen::Missed => self.shared.shown.steal_retries.add(1),
                }
            }
        }
        0
    }
}

impl<T: Node> RunQueue<T> for StealQueue<T> {
    #[inline]
    unsafe fn protect(&self) -> &mut ProtectQueue<T> {
        &mut self.own().protect
    }

    #[inline]
    unsafe fn push(&self, item: NonNull<T>, place: Place, origin: Origin) {
        let own = self.own();
        if place.key.is_some() || place.front {
            // SAFETY: upheld by the caller.
            return unsafe { own.protect.push(item, place, origin) };
        }
        // SAFETY: the caller guarantees that the item is live.
        unsafe { links(item) }.set(place, origin);
        self.append(own, item, node::rank(place.level));
    }

    #[inline]
    fn pop(&self) -> Option<(NonNull<T>, u8)> {
        let next = self.take(self.own(), u64::MAX);
        if next.is_none() {
            self.shared.publish(0, 0);
        }
        next
    }

    #[inline]
    fn pop_at_least(&self, level: u8) -> Option<(NonNull<T>, u8)> {
        self.take(self.own(), node::ranks_from(level))
    }

    unsafe fn remove(&self, item: NonNull<T>) -> bool {
        let own = self.own();
        // SAFETY: the caller guarantees that the item is live.
        if own.offered && unsafe { !own.protect.holds(item) } {
            self.reclaim(own, false);
        }
        // SAFETY: the caller guarantees that the item is live.
        if unsafe { own.protect.remove(item) } {
            return true;
        }
        // SAFETY: the item is live, and only the atomic word is read.
        let rank = node::rank(unsafe { links(item) }.level());
        let Some(deque) = self.deque(rank) else { return false };
        let n = deque.len();
        if n > SEARCH {
            return false;
        }
        // One rotation: popping and pushing all items keeps their order. Items that other VPs take
        // meanwhile disappear from the front.
        let mut found = false;
        for _ in 0..n {
            let Some(next) = deque.pop() else { break };
            if next == item {
                found = true;
            } else {
                // SAFETY: called by the owner.
                unsafe { deque.push(next) };
            }
        }
        found
    }

    #[inline]
    fn exchange(&self) -> Option<Taker> {
        let own = self.own();
        own.ticks = own.ticks.wrapping_add(1);
        if own.ticks & 15 == 0 {
            self.tick(own);
        }
        None
    }

    #[inline]
    fn surplus(&self, someone_idle: bool) -> Option<Taker> {
        if !someone_idle {
            return None;
        }
        let own = self.own();
        if own.bits | own.protect.ranks() == 0 {
            return None;
        }
        self.surplus_slow(own)
    }

    fn pull(&self) -> bool {
        let own = self.own();
        if own.offered {
            self.reclaim(own, true);
        }
        if !own.protect.is_empty() {
            return true;
        }
        own.turn = own.turn.wrapping_add(1);
        let turn = own.turn;
        // Tries the VP that publishes the highest level first, then all others.
        let best =
            self.peers.others(turn).min_by_key(|q| q.bits.load(Ordering::Relaxed).trailing_zeros());
        let mut got = best.map_or(0, |q| self.steal(own, q));
        if got == 0 {
            for q in self.peers.others(turn) {
                got = self.steal(own, q);
                if got > 0 {
                    break;
                }
                if let Some(item) = q.shared.offer.take() {
                    // SAFETY: the item was taken from a surplus slot, so this VP holds it.
                    unsafe { own.protect.adopt(item, false) };
                    got = 1;
                    break;
                }
            }
        }
        self.shared.shown.migrations.add(got);
        self.shared.publish(self.queued(own), Self::levels_of(own));
        got > 0
    }

    fn has_visible_work(&self) -> bool {
        // Pairs with the fences of VPs that make work visible. The caller has announced before that
        // it is about to sleep.
        fence(Ordering::SeqCst);
        !self.shared.injector.is_empty()
            || !self.shared.offer.is_empty()
            || self.peers.others(0).any(|q| {
                if !q.shared.offer.is_empty() {
                    return true;
                }
                let mut bits = q.bits.load(Ordering::Acquire);
                while bits != 0 {
                    let rank = bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    if q.deque(rank).is_some_and(|deque| !deque.is_empty()) {
                        return true;
                    }
                }
                false
            })
    }

    #[inline]
    fn len(&self) -> usize {
        self.queued(self.own())
    }

    #[inline]
    fn levels(&self) -> u64 {
        let own = self.own();
        Self::levels_of(own)
    }

    #[inline]
    fn has_above(&self, level: u8) -> bool {
        let own = self.own();
        (own.bits | own.protect.ranks()) & node::ranks_above(level) != 0
    }

    #[inline]
    fn peek(&self) -> Option<NonNull<T>> {
        None
    }

    fn has_incoming(&self) -> bool {
        // As in `has_visible_work`.
        fence(Ordering::SeqCst);
        !self.shared.injector.is_empty() || !self.shared.offer.is_empty()
    }

    fn waiting(&self) -> Option<u8> {
        let own = self.own();
        let queued = own.bits | own.protect.ranks();
        let offered =
            (own.offered && !self.shared.offer.is_empty()).then(|| own.guard.leading_zeros() as u8);
        (queued != 0).then(|| node::level(queued.trailing_zeros() as usize)).max(offered)
    }

    fn hand(&self, level: u8) -> Option<NonNull<T>> {
        let own = self.own();
        if own.offered {
            self.reclaim(own, true);
        }
        let wanted = node::ranks_from(level);
        loop {
            let kept = own.protect.ranks() & wanted;
            let all = (own.bits & wanted) | kept;
            if all == 0 {
                return None;
            }
            let rank = all.trailing_zeros() as usize;
            if kept >> rank & 1 != 0 {
                return own.protect.hand(level);
            }
            if let Some(item) = self.deque(rank).and_then(Deque::pop) {
                return Some(item);
            }
            self.ran_dry(own, rank);
        }
    }

    unsafe fn adopt(&self, item: NonNull<T>) {
        let own = self.own();
        // SAFETY: the caller guarantees that the item is live, and holds it.
        let place = unsafe { links(item) }.place();
        if place.key.is_some() {
            // SAFETY: upheld by the caller.
            return unsafe { own.protect.adopt(item, false) };
        }
        self.append(own, item, node::rank(place.level));
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
