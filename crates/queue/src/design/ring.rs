//! `ring`: the papers' scheduling without locks (P4).
//!
//! The VPs form a ring. At every context switch a VP takes all that its predecessor gave away into
//! its Protect Queue; what then exceeds its capacity goes on into its own Waiver Queue, so that
//! items flow round until all VPs have about the same number. Each Waiver Queue has one producer
//! and one consumer, hence no lock and no read-modify-write. The surplus slot (see there) is the
//! one addition, for VPs that idle.
//!
//! What the ring cannot do: items in a Waiver Queue wait until the next VP switches or idles. A VP
//! therefore puts nothing there while its neighbour has not taken what was there before, never a
//! woken item, and only the lowest level.

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
    /// Something is, or was, on offer.
    offered: bool,
    /// The ranks from the offered item's level upwards: if our queue has none of them, the offered
    /// one has to run first. All ones while nothing is on offer: then the same test says that there
    /// is nothing to run.
    guard: u64,
    /// What is on offer was there at the last tick already.
    stale_offer: bool,
    /// Level of what was put into our Waiver Queue last: a batch is of one level, and the next one
    /// waits until it is gone.
    gave: u8,
    limit: Limit,
    /// Exchanges until the next tick.
    ticks: u32,
    /// Where the next search for an offer begins.
    turn: usize,
    /// The neighbour's Waiver Queue.
    source: NonNull<WaiverQueue<T>>,
}

/// One VP's queues in the `ring` design.
pub struct RingQueue<T: Node> {
    own: UnsafeCell<OwnerSide<T>>,
    peers: Peers<RingQueue<T>>,
    shared: SharedSide<T>,
    waiver: WaiverQueue<T>,
}

// SAFETY: `own` is touched by the VP's carrier only (contract of `Set::local`); the rest is shared
// by design.
unsafe impl<T: Node> Sync for RingQueue<T> {}
// SAFETY: as above; items are pointers whose transfer `Node` regulates.
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
        // SAFETY: a place in the array; only its address is computed (with one VP it is this very
        // queue, which is borrowed now).
        let source = unsafe { &raw mut (*peers.previous_ptr().as_ptr()).waiver };
        self.own.get_mut().source = NonNull::new(source).unwrap_or(NonNull::dangling());
        self.peers = peers;
    }

    /// The owner's part.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    fn own(&self) -> &mut OwnerSide<T> {
        // SAFETY: only the VP's carrier calls what leads here (contract of `Set::local`), each
        // operation asks once, and none calls back into the queue while it has the reference.
        unsafe { &mut *self.own.get() }
    }

    /// Takes our own offer back if the owner needs it.
    #[cold]
    fn reclaim(&self, own: &mut OwnerSide<T>, front: bool) {
        own.offered = false;
        own.guard = u64::MAX;
        own.stale_offer = false;
        if let Some(item) = self.shared.offer.take() {
            self.shared.shown.offers_back.add(1);
            // SAFETY: taken from the surplus slot, so ours.
            unsafe { own.protect.adopt(item, front) };
        }
    }

    /// Takes all that the neighbour gave away. Returns the number.
    #[cold]
    fn take_over(&self, own: &mut OwnerSide<T>) -> usize {
        let protect = &mut own.protect;
        // SAFETY: the next VP of the ring is the only consumer, and that is us. Items come with
        // their places set.
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
                // Nobody wants it, and here it would wait for as long as its level never runs dry.
                self.reclaim(own, false);
            } else {
                own.stale_offer = true;
            }
        }
    }

    /// The capacity rule: gives surplus to the neighbour.
    #[cold]
    fn shed(&self, own: &mut OwnerSide<T>, running: usize) -> Option<Taker> {
        let surplus = own.limit.renew(own.protect.len(), running, &self.peers);
        let takes = !self.peers.get(self.peers.next()).shared.is_stuck();
        let mut given = 0;
        // Not before the neighbour has taken the last batch: whatever stands there is stuck until
        // it switches.
        // SAFETY: the owner is the only producer.
        let mut fill = unsafe { self.waiver.fill() };
        if surplus > 0 && takes && fill.began_empty() {
            let want = surplus.min(fill.free());
            if let Some(level) = own.protect.lowest() {
                own.gave = level;
                given = own.protect.give(level, want, |item| {
                    assert!(fill.push(item).is_ok(), "more than what is free");
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
        // The caller looks next whether the neighbour sleeps; the neighbour, before it sleeps,
        // looks here. One of the two must see the other.
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
        // SAFETY: in no queue any more, ours, live.
        own.guard = node::ranks_from(unsafe { links(item) }.level());
        own.offered = true;
        own.stale_offer = false;
        // SAFETY: ours and empty.
        unsafe { self.shared.offer.put(item) };
        self.shared.shown.offers.add(1);
        // As in `shed`.
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
        // SAFETY: live by the caller's promise.
        if own.offered && unsafe { !own.protect.holds(item) } {
            self.reclaim(own, false);
        }
        // SAFETY: as the caller promises.
        unsafe { own.protect.remove(item) }
    }

    #[inline]
    fn exchange(&self) -> Option<Taker> {
        let own = self.own();
        own.ticks -= 1;
        if own.ticks == 0 {
            self.tick(own);
        }
        // SAFETY: a queue of the array, which lives as long as this one; we are its only consumer.
        if unsafe { !own.source.as_ref().has_some() } {
            return None;
        }
        self.take_over(own);
        if own.protect.len() <= own.limit.queued {
            return None;
        }
        // A leaving item is not ours until pushed again; and if none ran, one of these has to stay,
        // or they would all pass through idle VPs for ever.
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
                // SAFETY: taken from a surplus slot, so ours.
                unsafe { own.protect.adopt(item, false) };
                got = true;
            }
        }
        self.shared.publish(own.protect.len(), own.protect.levels());
        got
    }

    fn has_visible_work(&self) -> bool {
        // Pairs with the fences of VPs that make work visible; the caller has said before that it
        // is about to sleep.
        fence(Ordering::SeqCst);
        !self.shared.injector.is_empty()
            || !self.peers.previous().waiver.is_empty()
            || !self.shared.offer.is_empty()
            || self.peers.others(0).any(|q| !q.shared.offer.is_empty())
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
