//! `ring`: the papers' design without locks (P4).
//!
//! The VPs form a ring. At every context switch, a VP moves all items that its predecessor gave
//! away to its Protect Queue. Items beyond its capacity go to its own Waiver Queue, from which its
//! successor takes them, until all VPs have about the same number of items. Each Waiver Queue has
//! one producer and one consumer, so it needs no lock and no read-modify-write. The surplus slot
//! (`part::surplus_slot`) is an addition for idle VPs.
//!
//! Limitation: items in a Waiver Queue wait until the next VP switches or idles. A VP therefore
//! gives no batch away before its neighbour has taken the previous one. It gives away only items of
//! its lowest level, and no woken items.

use core::{cell::UnsafeCell, ptr::NonNull};

use super::capacity::{Capacity, Limit};
use super::peers::{Peer, Peers};
use crate::loom::{Ordering, fence};
use crate::node::{self, Node, links};
use crate::part::injector::Injector;
use crate::part::protect_queue::ProtectQueue;
use crate::part::shared_side::{SharedSide, Stats};
use crate::part::waiver_queue::WaiverQueue;
use crate::run_queue::RunQueue;
use crate::run_queue::Taker;

struct OwnerSide<T: Node> {
    protect: ProtectQueue<T>,
    /// Set if the surplus slot holds, or held, an item.
    offered: bool,
    /// The ranks from the level of the item in the surplus slot upwards. If the Protect Queue has
    /// none of them, that item must run first. All ones while the slot is empty; the same test then
    /// means that the Protect Queue is empty.
    guard: u64,
    /// Set if the item in the surplus slot was already there at the last tick.
    stale_offer: bool,
    /// Level of the last batch put into this VP's Waiver Queue. A batch has a single level, and the
    /// next batch waits until it is gone.
    gave: u8,
    limit: Limit,
    /// Exchanges until the next tick.
    ticks: u32,
    /// Where the next search for another VP's surplus slot begins.
    turn: usize,
    /// The predecessor's Waiver Queue.
    source: NonNull<WaiverQueue<T>>,
}

/// One VP's queues in the `ring` design.
pub struct RingQueue<T: Node> {
    own: UnsafeCell<OwnerSide<T>>,
    peers: Peers<RingQueue<T>>,
    shared: SharedSide<T>,
    waiver: WaiverQueue<T>,
}

// SAFETY: only the VP's carrier accesses `own` (contract of `Set::local`); the rest is safe to
// share.
unsafe impl<T: Node> Sync for RingQueue<T> {}
// SAFETY: as above; the contract of `Node` covers the transfer of items.
unsafe impl<T: Node> Send for RingQueue<T> {}

impl<T: Node> Peer<T> for RingQueue<T> {
    fn shared(&self) -> &SharedSide<T> {
        &self.shared
    }
    fn on_the_way(&self) -> usize {
        self.waiver.len()
    }
}

impl<T: Node> RingQueue<T> {
    pub(crate) fn new(vp: usize, n_vps: usize, rule: Capacity, places: usize) -> RingQueue<T> {
        RingQueue {
            own: UnsafeCell::new(OwnerSide {
                protect: ProtectQueue::new(vp),
                offered: false,
                guard: u64::MAX,
                stale_offer: false,
                gave: 0,
                limit: Limit::new(rule, n_vps),
                ticks: 1,
                turn: vp,
                source: NonNull::dangling(),
            }),
            peers: Peers::none(),
            shared: SharedSide::new(),
            waiver: WaiverQueue::new(places),
        }
    }

    pub(crate) fn join(&mut self, peers: Peers<RingQueue<T>>) {
        // SAFETY: the queue is an element of the array, and only an address is computed. With one
        // VP, it is this queue, which is borrowed now.
        let source = unsafe { &raw mut (*peers.previous_ptr().as_ptr()).waiver };
        self.own.get_mut().source = NonNull::new(source).unwrap_or(NonNull::dangling());
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

    /// Takes the item in this VP's surplus slot back, if it is still there.
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

    /// Takes all items that the predecessor gave away, and returns their number.
    #[cold]
    fn take_over(&self, own: &mut OwnerSide<T>) -> usize {
        let protect = &mut own.protect;
        // SAFETY: only the next VP of the ring consumes from that queue, and that is this VP. The
        // items already have places.
        let n = unsafe { own.source.as_ref().take(usize::MAX, |item| protect.adopt(item, false)) };
        self.shared.shown.migrations.add(n);
        n
    }

    #[cold]
    fn pop_slow(&self, own: &mut OwnerSide<T>) -> Option<(NonNull<T>, u8)> {
        if own.offered {
            self.reclaim(own, true);
        }
        let next = own.protect.pop();
        if next.is_none() {
            self.shared.publish(0, 0);
        }
        next
    }

    #[cold]
    fn pop_at_least_slow(&self, own: &mut OwnerSide<T>, level: u8) -> Option<(NonNull<T>, u8)> {
        let high_enough = own.guard & !node::ranks_from(level) == 0;
        if own.offered && high_enough && own.protect.ranks() & own.guard == 0 {
            self.reclaim(own, true);
        }
        own.protect.pop_at_least(level)
    }

    #[cold]
    fn tick(&self, own: &mut OwnerSide<T>) {
        own.ticks = self.peers.period();
        self.shared.publish(own.protect.len() + 1, own.protect.levels());
        own.limit.renew(own.protect.len(), 1, &self.peers);
        if own.offered {
            if own.stale_offer {
                // No VP takes the item, and in the slot it would wait as long as its level never
                // runs empty.
                self.reclaim(own, false);
            } else {
                own.stale_offer = true;
            }
        }
    }

    /// Applies the capacity rule: gives surplus to the successor.
    #[cold]
    fn shed(&self, own: &mut OwnerSide<T>, running: usize) -> Option<Taker> {
        let surplus = own.limit.renew(own.protect.len(), running, &self.peers);
        let takes = !self.peers.get(self.peers.next()).shared.is_closed();
        let mut given = 0;
        // Waits until the successor has taken the last batch, because items in the Waiver Queue
        // cannot move until it switches.
        // SAFETY: this VP is the only producer.
        let mut fill = unsafe { self.waiver.fill() };
        if surplus > 0 && takes && fill.began_empty() {
            let want = surplus.min(fill.free());
            if let Some(level) = own.protect.lowest() {
                own.gave = level;
                given = own.protect.give(level, want, |item| {
                    assert!(fill.push(item).is_ok(), "the batch is bounded by the free places");
                });
            }
        }
        drop(fill);
        self.shared.publish(own.protect.len() + running, own.protect.levels());
        own.limit.put_off(own.protect.len());
        if given == 0 {
            return None;
        }
        self.shared.shown.waiver_passes.add(1);
        // The caller next reads whether the successor sleeps; the successor reads this queue before
        // it sleeps. The fences ensure that at least one of them sees the other's store.
        fence(Ordering::SeqCst);
        Some(Taker::Vp(self.peers.next()))
    }

    #[cold]
    fn surplus_slow(&self, own: &mut OwnerSide<T>, someone_idle: bool) -> Option<Taker> {
        if own.protect.len() > own.limit.queued {
            let taker = self.shed(own, 1);
            if taker.is_some() {
                return taker;
            }
        }
        if !someone_idle || !self.shared.offer.is_empty() {
            return None;
        }
        let item = own.protect.give_highest()?;
        // SAFETY: the item is live, in no queue, and held by this VP.
        own.guard = node::ranks_from(unsafe { links(item) }.level());
        own.offered = true;
        own.stale_offer = false;
        // SAFETY: the slot belongs to this VP and is empty.
        unsafe { self.shared.offer.put(item) };
        self.shared.shown.offers.add(1);
        // Same fence as in `shed`.
        fence(Ordering::SeqCst);
        Some(Taker::Any)
    }
}

impl<T: Node> RunQueue<T> for RingQueue<T> {
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
        if own.offered && unsafe { !own.protect.holds(item) } {
            self.reclaim(own, false);
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
        // SAFETY: the queue is in the array, which lives as long as this one, and this VP is its
        // only consumer.
        if unsafe { !own.source.as_ref().has_some() } {
            return None;
        }
        self.take_over(own);
        if own.protect.len() <= own.limit.queued {
            return None;
        }
        // The item that is being switched out is not in this queue before its push. If no item ran,
        // one of the new items must stay, or all of them would pass through idle VPs forever.
        self.shed(own, 0)
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
        if own.offered {
            self.reclaim(own, true);
        }
        let mut got = self.take_over(own) > 0 || !own.protect.is_empty();
        if !got && self.peers.count() > 1 {
            own.turn = own.turn.wrapping_add(1);
            if let Some(item) = self.peers.others(own.turn).find_map(|q| q.shared.offer.take()) {
                self.shared.shown.migrations.add(1);
                // SAFETY: the item was taken from a surplus slot, so this VP holds it.
                unsafe { own.protect.adopt(item, false) };
                got = true;
            }
        }
        self.shared.publish(own.protect.len(), own.protect.levels());
        got
    }

    fn has_visible_work(&self) -> bool {
        // Pairs with the fences of VPs that make work visible. The caller has announced before that
        // it is about to sleep.
        fence(Ordering::SeqCst);
        !self.shared.injector.is_empty()
            || !self.peers.previous().waiver.is_empty()
            || !self.shared.offer.is_empty()
            || self.peers.others(0).any(|q| !q.shared.offer.is_empty())
    }

    fn has_incoming(&self) -> bool {
        // As in `has_visible_work`.
        fence(Ordering::SeqCst);
        !self.shared.injector.is_empty()
            || !self.peers.previous().waiver.is_empty()
            || !self.shared.offer.is_empty()
    }

    fn waiting(&self) -> Option<u8> {
        let own = self.own();
        let offered =
            (own.offered && !self.shared.offer.is_empty()).then(|| own.guard.leading_zeros() as u8);
        let given = (!self.waiver.is_empty()).then_some(own.gave);
        own.protect.highest().max(offered).max(given)
    }

    fn hand(&self, level: u8) -> Option<NonNull<T>> {
        let own = self.own();
        if own.offered {
            self.reclaim(own, true);
        }
        own.protect.hand(level)
    }

    fn given(&self) -> Option<(usize, u8)> {
        (!self.waiver.is_empty()).then(|| (self.peers.next(), self.own().gave))
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
