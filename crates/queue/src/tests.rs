//! Properties common to all designs, on one kernel thread.

use core::ptr::NonNull;
use std::{boxed::Box, vec::Vec};

use crate::Capacity;
use crate::Design;
use crate::Links;
use crate::Node;
use crate::Origin;
use crate::Place;
use crate::Set;
use crate::Taker;

pub(crate) struct Item {
    links: Links<Item>,
    pub(crate) id: usize,
}

// SAFETY: `links` returns the one field, and the tests keep items at a fixed address until the end.
unsafe impl Node for Item {
    fn links(&self) -> &Links<Item> {
        &self.links
    }
}

/// Items that live as long as this value.
pub(crate) struct Items(Vec<NonNull<Item>>);

impl Items {
    pub(crate) fn new(n: usize) -> Items {
        Items(
            (0..n)
                .map(|id| NonNull::from(Box::leak(Box::new(Item { links: Links::new(), id }))))
                .collect(),
        )
    }
    pub(crate) fn get(&self, i: usize) -> NonNull<Item> {
        self.0[i]
    }
    pub(crate) fn all(&self) -> impl Iterator<Item = NonNull<Item>> + '_ {
        self.0.iter().copied()
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        for item in &self.0 {
            // SAFETY: `new` leaked the item.
            drop(unsafe { Box::from_raw(item.as_ptr()) });
        }
    }
}

pub(crate) fn id(item: NonNull<Item>) -> usize {
    // SAFETY: items outlive the queues of their test, and `id` never changes.
    unsafe { item.as_ref() }.id
}

#[test]
fn items_pop_in_order_and_can_be_removed() {
    for design in Design::ALL {
        let items = Items::new(8);
        let set = Set::new(design, 1, Capacity::default());
        // SAFETY: this thread is the only carrier of VP 0, and each item is pushed while it is in
        // no queue.
        unsafe {
            let q = set.local(0);
            let places = [
                Place::back(3),
                Place::back(63),
                Place::back(3),
                Place::front(3),
                Place::keyed(3, 9),
                Place::keyed(3, 4),
                Place::back(0),
                Place::back(3),
            ];
            for (i, place) in places.into_iter().enumerate() {
                q.push(items.get(i), place, Origin::Spawn);
            }
            assert_eq!(q.len(), 8);
            assert!(q.has_above(0) && q.has_above(62) && !q.has_above(63));
            assert_eq!((q.first_key(3), q.first_key(63)), (Some(4), None));
            assert!(q.remove(items.get(2)), "{design:?}");
            assert!(!q.remove(items.get(2)), "{design:?}");
            assert_eq!(q.pop_at_least(4).map(|(i, l)| (id(i), l)), Some((1, 63)));
            assert_eq!(q.pop_at_least(4), None);
            let order: Vec<_> = std::iter::from_fn(|| q.pop()).map(|(i, l)| (id(i), l)).collect();
            assert_eq!(order, [(5, 3), (4, 3), (3, 3), (0, 3), (7, 3), (6, 0)], "{design:?}");
            assert!(
                q.is_empty() && q.surplus(true).is_none() && !q.has_visible_work() && !q.pull()
            );
        }
    }
}

/// One VP has a second item while another VP idles. The idle VP can take it until the owner needs
/// it.
#[test]
fn idle_vp_or_owner_takes_an_offered_item() {
    for design in Design::ALL {
        for idle_first in [false, true] {
            let items = Items::new(1);
            let set = Set::new(design, 3, Capacity::default());
            // SAFETY: one kernel thread acts as all carriers; the item is pushed while it is in no
            // queue.
            unsafe {
                let (parent, idle) = (set.local(0), set.local(2));
                parent.push(items.get(0), Place::back(7), Origin::Spawn);
                assert_eq!(parent.surplus(true), Some(Taker::Any), "{design:?}");
                assert_eq!(parent.surplus(true), None, "{design:?}: no new item");
                assert!(idle.has_visible_work());
                if idle_first {
                    assert!(idle.pull());
                    assert_eq!(idle.pop().map(|(_, l)| l), Some(7), "{design:?}");
                    assert_eq!(set.stats(2).migrations, 1);
                    assert!(parent.pop().is_none());
                } else {
                    assert_eq!(parent.pop().map(|(_, l)| l), Some(7), "{design:?}");
                    assert!(!idle.has_visible_work() && !idle.pull());
                }
            }
        }
    }
}

/// The next item to run leaves, with or without a key, and no other item does.
#[test]
fn loosened_woken_item_is_given_away() {
    for design in Design::ALL.into_iter().filter(|design| design.name() != "steal") {
        for place in [Place::back(9), Place::keyed(9, 3)] {
            let items = Items::new(3);
            let set = Set::new(design, 2, Capacity::Fixed(8));
            // SAFETY: one kernel thread acts as all carriers; items are pushed while they are in no
            // queue.
            unsafe {
                let (q, idle) = (set.local(0), set.local(1));
                q.loosen();
                for item in items.all() {
                    q.push(item, place, Origin::Wake);
                }
                assert_eq!(q.surplus(true), None, "{design:?}");
                q.loosen();
                assert_eq!(q.surplus(true), Some(Taker::Any), "{design:?}");
                assert!(idle.pull());
                assert_eq!(idle.pop().map(|(i, l)| (id(i), l)), Some((0, 9)), "{design:?}");
                assert_eq!(q.surplus(true), None, "{design:?}: the other items stay");
            }
        }
    }
}

/// In the ring, only the neighbour can take items, and a stuck neighbour would keep them. An idle
/// VP still reaches offered items.
#[test]
fn stuck_neighbour_is_given_no_items() {
    for design in Design::ALL {
        let items = Items::new(64);
        let set = Set::new(design, 3, Capacity::default());
        // SAFETY: one kernel thread acts as all carriers; items are pushed while they are in no
        // queue.
        unsafe {
            let (q, idle) = (set.local(0), set.local(2));
            set.set_stuck(1, true);
            assert!(set.is_closed(1) && !set.is_closed(0));
            for item in items.all() {
                q.push(item, Place::back(9), Origin::Spawn);
                assert_ne!(q.surplus(true), Some(Taker::Vp(1)), "{design:?}");
                assert_ne!(q.exchange(), Some(Taker::Vp(1)), "{design:?}");
            }
            assert!(idle.pull(), "{design:?}");
            let mut found = 0;
            for vp in [idle, q] {
                while vp.pull() || !vp.is_empty() {
                    found += std::iter::from_fn(|| vp.pop()).count();
                }
            }
            assert_eq!(found, 64, "{design:?}: the other two VPs reach all items");

            set.set_stuck(1, false);
            for item in items.all() {
                q.push(item, Place::back(9), Origin::Spawn);
            }
            if design == Design::Ring {
                // The ring gives items again no later than the next tick.
                let gives = |_| {
                    q.exchange() == Some(Taker::Vp(1)) || q.surplus(false) == Some(Taker::Vp(1))
                };
                assert!((0..17).any(gives), "the neighbour is given items again");
            }
        }
    }
}

#[test]
fn woken_items_are_not_given_away() {
    for design in Design::ALL.into_iter().filter(|design| design.name() != "steal") {
        let items = Items::new(64);
        let set = Set::new(design, 4, Capacity::Fixed(1));
        // SAFETY: one kernel thread acts as all carriers; items are pushed while they are in no
        // queue.
        unsafe {
            let q = set.local(1);
            for item in items.all() {
                q.push(item, Place::back(9), Origin::Wake);
            }
            for _ in 0..100 {
                assert_eq!(q.exchange(), None);
                assert_eq!(q.surplus(true), None);
            }
            assert_eq!(q.len(), 64);
            assert!(!set.has_visible_work(2));
        }
    }
}

/// `hand` takes the next item to run from any queue, and the item keeps its level and key.
#[test]
fn handed_item_keeps_its_place() {
    for design in Design::ALL {
        let items = Items::new(5);
        let set = Set::new(design, 2, Capacity::Fixed(64));
        // SAFETY: one kernel thread acts as both carriers; each item is pushed while it is in no
        // queue.
        unsafe {
            let (from, to) = (set.local(0), set.local(1));
            assert_eq!((from.waiting(), from.hand(0)), (None, None));
            let places = [
                Place::back(7),
                Place::keyed(7, 5),
                Place::back(9),
                Place::back(3),
                Place::keyed(7, 4),
            ];
            for (item, place) in items.all().zip(places) {
                from.push(item, place, Origin::Spawn);
            }
            // The item is in the surplus slot or the Waiver Queue. It still counts as waiting, and
            // the owner takes it back.
            assert_eq!(from.surplus(true), Some(Taker::Any), "{design:?}");
            assert_eq!(from.waiting(), Some(9), "{design:?}");
            assert_eq!(from.hand(10), None, "{design:?}");
            for expected in [2, 4, 1, 0] {
                let item = from.hand(7).expect("an item is left");
                assert_eq!(id(item), expected, "{design:?}");
                to.adopt(item);
            }
            assert_eq!((from.hand(7), from.waiting()), (None, Some(3)), "{design:?}");
            let order: Vec<_> = std::iter::from_fn(|| to.pop()).map(|(i, l)| (id(i), l)).collect();
            assert_eq!(order, [(2, 9), (4, 7), (1, 7), (0, 7)], "{design:?}");
        }
    }
}

#[test]
fn given_reports_items_only_the_neighbour_can_take() {
    let items = Items::new(9);
    let set = Set::new(Design::Ring, 3, Capacity::Fixed(1));
    // SAFETY: one kernel thread acts as all carriers; each item is pushed while it is in no queue.
    unsafe {
        let (from, to) = (set.local(0), set.local(1));
        assert_eq!(from.given(), None);
        for item in items.all() {
            from.push(item, Place::back(9), Origin::Spawn);
        }
        assert_eq!(from.surplus(false), Some(Taker::Vp(1)));
        assert_eq!(
            (from.given(), from.hand(9).is_some(), from.hand(9).is_some()),
            (Some((1, 9)), true, false)
        );
        assert_eq!((from.waiting(), to.waiting()), (Some(9), None));
        let _ = to.exchange();
        assert_eq!((from.waiting(), from.given(), to.waiting()), (None, None, Some(9)));
    }
}

#[test]
fn injected_items_keep_their_order() {
    let items = Items::new(5);
    let set = Set::new(Design::Ring, 2, Capacity::default());
    // SAFETY: this thread is the only carrier of VP 1; items are injected while they are in no
    // queue.
    unsafe {
        let q = set.local(1);
        assert!(q.injector_is_empty());
        for (i, item) in items.all().enumerate() {
            assert_eq!(set.inject(1, item), i == 0);
        }
        assert!(q.has_visible_work() && !set.has_visible_work(0));
        assert_eq!(q.take_injected().map(id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(q.take_injected().count(), 0);
    }
}

#[test]
fn invalid_numbers_of_vps_panic() {
    for n in [0, crate::MAX_VPS + 1, 10_000] {
        let made =
            std::panic::catch_unwind(|| Set::<Item>::new(Design::Ring, n, Capacity::default()));
        assert!(made.is_err(), "{n}");
    }
    let most = Design::ALL.map(|of| Set::<Item>::new(of, crate::MAX_VPS, Capacity::default()));
    assert!(most.iter().all(|set| set.vps() == 1024));
}

#[test]
fn locked_and_steal_require_the_lab_feature() {
    assert_eq!(Design::from_name("ring"), Some(Design::Ring));
    for name in ["locked", "steal"] {
        assert_eq!(Design::from_name(name).is_some(), cfg!(feature = "lab"), "{name}");
    }
}
