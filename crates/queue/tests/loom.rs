//! Model checks: every interleaving, within the stated bounds, of operations on the queues' parts.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p kumihimo-queue --features lab --release --test loom`
#![cfg(loom)]

use core::ptr::NonNull;
use std::{
    boxed::Box,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

#[cfg(feature = "lab")]
use kumihimo_queue::deque::{Deque, Stolen};
use kumihimo_queue::{
    Capacity, Design, Links, Node, Origin, Owner, Place, Set, Taker, injector::Injector,
    surplus_slot::SurplusSlot, waiver_queue::WaiverQueue,
};
use loom::{
    cell::Cell,
    model::Builder,
    sync::atomic::{AtomicBool, fence},
    thread,
};

struct Item {
    links: Links<Item>,
    id: usize,
    /// Accessed by the item's holder. Loom reports two holders, or a transfer without a
    /// happens-before edge.
    held: Cell<usize>,
}

// SAFETY: `links` returns the one field, and items live in `Items` for the whole model.
unsafe impl Node for Item {
    fn links(&self) -> &Links<Item> {
        &self.links
    }
}

struct Items(Vec<NonNull<Item>>);

// SAFETY: pointers to items whose cells loom checks.
unsafe impl Send for Items {}
// SAFETY: as above.
unsafe impl Sync for Items {}

impl Items {
    fn new(n: usize) -> Arc<Items> {
        let make = |id| Item { links: Links::new(), id, held: Cell::new(0) };
        Arc::new(Items((0..n).map(|id| NonNull::from(Box::leak(Box::new(make(id))))).collect()))
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

/// Accesses the item as its holder, and returns its ID.
fn hold(item: NonNull<Item>) -> usize {
    // SAFETY: items live for the whole model.
    let item = unsafe { item.as_ref() };
    item.held.set(item.held.get() + 1);
    item.id
}

/// Explores `f` twice: once from the execution in which its main thread runs first, and once from
/// that in which the other threads do. `f` receives the second case as `true`, and must then yield.
/// Loom detects competing accesses only against the last access to each object, which may belong to
/// the competitor itself.
fn check(preemptions: Option<usize>, f: impl Fn(bool) + Sync + Send + 'static) {
    let f = Arc::new(f);
    for others_first in [false, true] {
        let mut model = Builder::new();
        if model.preemption_bound.is_none() {
            model.preemption_bound = preemptions;
        }
        let runs = Arc::new(AtomicUsize::new(0));
        let (f, count) = (f.clone(), runs.clone());
        model.check(move || {
            count.fetch_add(1, Ordering::Relaxed);
            f(others_first);
        });
        let runs = runs.load(Ordering::Relaxed);
        println!("{runs} interleavings");
        assert!(runs > 1, "loom explored only one interleaving");
    }
}

#[test]
fn waiver_queue_keeps_all_items_in_order() {
    check(None, |others_first| {
        let items = Items::new(3);
        let waiver = Arc::new(WaiverQueue::new(2));
        let producer = {
            let (items, waiver) = (items.clone(), waiver.clone());
            thread::spawn(move || {
                let mut sent = 0;
                // Two batches: the second one finds places only if the consumer returned some.
                for turn in [2, 3] {
                    // SAFETY: this thread is the only producer.
                    let mut fill = unsafe { waiver.fill() };
                    while sent < turn {
                        hold(items.0[sent]);
                        if fill.push(items.0[sent]).is_err() {
                            break;
                        }
                        sent += 1;
                    }
                }
                sent
            })
        };
        give_way(others_first);
        let mut got = vec![];
        for most in [1, usize::MAX] {
            // SAFETY: this thread is the only consumer.
            unsafe { waiver.take(most, |item| got.push(hold(item))) };
        }
        let sent = producer.join().unwrap();
        // SAFETY: this thread is the only consumer.
        unsafe { waiver.take(usize::MAX, |item| got.push(hold(item))) };
        assert!(sent >= 2 && waiver.is_empty());
        assert_eq!(got, (0..sent).collect::<Vec<_>>());
    });
}

#[test]
fn offered_item_goes_to_one_taker() {
    check(None, |others_first| {
        let items = Items::new(2);
        let offer = Arc::new(SurplusSlot::new());
        let taker = || {
            let offer = offer.clone();
            thread::spawn(move || offer.take().map(hold))
        };
        let (a, b) = (taker(), taker());
        give_way(others_first);
        let mut got = vec![];
        hold(items.0[0]);
        // SAFETY: this thread owns the slot, which is empty.
        unsafe { offer.put(items.0[0]) };
        got.extend(offer.take().map(hold));
        assert!(offer.is_empty());
        hold(items.0[1]);
        // SAFETY: this thread owns the slot, which is empty.
        unsafe { offer.put(items.0[1]) };
        got.extend(a.join().unwrap());
        got.extend(b.join().unwrap());
        got.extend(offer.take().map(hold));
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
    });
}

/// The owner pushes more items than there are cells, and pops. Two other threads steal into deques
/// of their own, one of which already has an item.
#[cfg(feature = "lab")]
#[test]
fn deque_gives_each_item_to_one_taker() {
    check(Some(3), |others_first| {
        let items = Items::new(5);
        let deque = Arc::new(Deque::new());
        let thief = |begin: Option<usize>| {
            let (items, deque) = (items.clone(), deque.clone());
            thread::spawn(move || {
                let own = Deque::new();
                if let Some(item) = begin {
                    hold(items.0[item]);
                    // SAFETY: this thread owns the deque.
                    unsafe { own.push(items.0[item]) };
                }
                // SAFETY: this thread owns the target, which is another deque.
                let stolen = unsafe { deque.steal(&own) };
                let got: Vec<_> = std::iter::from_fn(|| own.pop()).map(hold).collect();
                let count = if let Stolen::Some(count) = stolen { count } else { 0 };
                let before = usize::from(begin.is_some());
                assert_eq!(got.len(), before + count);
                assert!(got[before..].is_sorted(), "{got:?}");
                got
            })
        };
        let (a, b) = (thief(None), thief(Some(4)));
        give_way(others_first);
        let mut got = vec![];
        for n in 0..4 {
            hold(items.0[n]);
            // SAFETY: this thread owns the deque.
            unsafe { deque.push(items.0[n]) };
            if n == 1 {
                got.extend(deque.pop().map(hold));
            }
        }
        got.extend(std::iter::from_fn(|| deque.pop()).map(hold));
        assert!(got.is_sorted() && deque.is_empty(), "{got:?}");
        got.extend(a.join().unwrap());
        got.extend(b.join().unwrap());
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2, 3, 4]);
    });
}

#[test]
fn injector_keeps_all_items_and_reports_the_first() {
    check(Some(3), |others_first| {
        let items = Items::new(4);
        let injector = Arc::new(Injector::new());
        let told = Arc::new(AtomicBool::new(false));
        let producer = |from: usize| {
            let (items, injector, told) = (items.clone(), injector.clone(), told.clone());
            thread::spawn(move || {
                for i in from..from + 2 {
                    hold(items.0[i]);
                    // SAFETY: the item is live and in no injector.
                    if unsafe { injector.push(items.0[i]) } {
                        told.store(true, Ordering::Release);
                    }
                }
            })
        };
        let (a, b) = (producer(0), producer(2));
        give_way(others_first);
        let mut got: Vec<usize> = injector.take().map(hold).collect();
        a.join().unwrap();
        b.join().unwrap();
        // A consumer that looks only after a notification still gets all items: the present items
        // arrived after the last `take`, and the first of them returned `true`.
        assert!(told.load(Ordering::Acquire) || injector.is_empty());
        got.extend(injector.take().map(hold));
        let order = |a, b| got.iter().position(|&i| i == a) < got.iter().position(|&i| i == b);
        assert!(order(0, 1) && order(2, 3), "{got:?}");
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2, 3]);
    });
}

/// VP `vp`'s handle, for another kernel thread of the model.
struct Carrier(Owner<Item>);
// SAFETY: the model gives each VP to one thread at a time, and joins it before the next.
unsafe impl Send for Carrier {}

impl Carrier {
    fn new(set: &Set<Item>, vp: usize) -> Carrier {
        // SAFETY: as for `Send`; the set is dropped last.
        Carrier(unsafe { set.local(vp) })
    }

    fn push(&self, item: NonNull<Item>, origin: Origin) {
        hold(item);
        // SAFETY: the item is live, held by the caller, and in no queue.
        unsafe { self.0.push(item, Place::back(5), origin) }
    }

    /// Performs a context switch in which the running item yields.
    fn switch(&self) {
        let _ = self.0.exchange();
        if let Some((item, _)) = self.0.pop() {
            self.push(item, Origin::Yield);
        }
        let _ = self.0.surplus(false);
    }
}

/// Takes all items out of the queues, in rounds over the VPs.
fn drain(set: &Set<Item>) -> Vec<usize> {
    let mut got = vec![];
    for _ in 0..=set.vps() {
        for vp in 0..set.vps() {
            let carrier = Carrier::new(set, vp);
            carrier.0.pull();
            while let Some((item, _)) = carrier.0.pop() {
                got.push(hold(item));
            }
        }
    }
    got.sort_unstable();
    got
}

/// Every VP starts with the given number of items, gives surplus away, switches, and pulls.
fn transfer(design: Design, begin: &'static [usize], preemptions: Option<usize>) {
    check(preemptions, move |others_first| {
        let vps = begin.len();
        let n = begin.iter().sum();
        let items = Items::new(n);
        let set = Arc::new(Set::with_places(design, vps, Capacity::Fixed(1), 2));
        let taken = Arc::new(Mutex::new(vec![]));
        let course = {
            let (items, taken) = (items.clone(), taken.clone());
            move |vp: usize, carrier: &Carrier| {
                let first: usize = begin[..vp].iter().sum();
                for i in first..first + begin[vp] {
                    carrier.push(items.0[i], Origin::Spawn);
                }
                let _ = carrier.0.surplus(vp % 2 == 0);
                carrier.switch();
                carrier.0.pull();
                if let Some((item, _)) = carrier.0.pop() {
                    taken.lock().unwrap().push(hold(item));
                }
            }
        };
        let others: Vec<_> = (1..vps)
            .map(|vp| {
                let (set, course, carrier) = (set.clone(), course.clone(), Carrier::new(&set, vp));
                thread::spawn(move || {
                    let carrier = carrier;
                    course(vp, &carrier);
                    drop(set);
                })
            })
            .collect();
        give_way(others_first);
        course(0, &Carrier::new(&set, 0));
        for other in others {
            other.join().unwrap();
        }
        let mut all = drain(&set);
        all.extend(taken.lock().unwrap().iter());
        all.sort_unstable();
        assert_eq!(all, (0..n).collect::<Vec<_>>());
    });
}

fn give_way(others_first: bool) {
    if others_first {
        thread::yield_now();
    }
}

#[test]
fn ring_keeps_all_items_of_two_vps() {
    transfer(Design::Ring, &[3, 0], None);
    transfer(Design::Ring, &[2, 2], None);
}

#[test]
fn ring_keeps_all_items_of_three_vps() {
    transfer(Design::Ring, &[4, 0, 0], Some(3));
    transfer(Design::Ring, &[3, 2, 1], Some(3));
}

#[cfg(feature = "lab")]
#[test]
fn locked_keeps_all_items_of_two_vps() {
    transfer(Design::Locked, &[3, 0], None);
    transfer(Design::Locked, &[2, 1], None);
}

/// One owner, and two VPs that remove items from its queue, all three under its lock.
#[cfg(feature = "lab")]
#[test]
fn locked_keeps_all_items_of_three_vps() {
    check(Some(3), |others_first| {
        let items = Items::new(3);
        let set = Arc::new(Set::with_places(Design::Locked, 3, Capacity::Fixed(1), 4));
        let own = Carrier::new(&set, 0);
        for &item in &items.0 {
            own.push(item, Origin::Spawn);
        }
        let thief = |vp| {
            let set = set.clone();
            let carrier = Carrier::new(&set, vp);
            thread::spawn(move || {
                let carrier = carrier;
                carrier.0.pull();
                let got = carrier.0.pop().map(|(item, _)| hold(item));
                drop(set);
                got
            })
        };
        let (a, b) = (thief(1), thief(2));
        give_way(others_first);
        let _ = own.0.surplus(true);
        let mut all: Vec<_> =
            (0..3).filter_map(|_| own.0.pop()).map(|(item, _)| hold(item)).collect();
        all.extend(a.join().unwrap());
        all.extend(b.join().unwrap());
        all.extend(drain(&set));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    });
}

/// The owner writes a batch to a full Waiver Queue, which another VP empties meanwhile.
#[cfg(feature = "lab")]
#[test]
fn places_returned_during_a_batch_are_not_used() {
    check(None, move |others_first| {
        let items = Items::new(3);
        let set = Arc::new(Set::with_places(Design::Locked, 2, Capacity::Fixed(1), 1));
        let own = Carrier::new(&set, 0);
        for &item in &items.0 {
            own.push(item, Origin::Spawn);
        }
        assert!(own.0.surplus(true).is_some());
        let thief = {
            let (set, carrier) = (set.clone(), Carrier::new(&set, 1));
            thread::spawn(move || {
                let carrier = carrier;
                carrier.0.pull();
                drop(set);
            })
        };
        give_way(others_first);
        let _ = own.0.surplus(true);
        thief.join().unwrap();
        assert_eq!(drain(&set), [0, 1, 2]);
    });
}

/// One VP makes work visible and then reads which VPs sleep. Another VP announces its sleep and
/// then checks for visible work.
fn sleeper(design: Design, items: usize) {
    check(None, move |others_first| {
        let items = Items::new(items);
        let set = Arc::new(Set::with_places(design, 2, Capacity::Fixed(1), 4));
        let sleeps = Arc::new(AtomicBool::new(false));
        let idle = {
            let (set, sleeps) = (set.clone(), sleeps.clone());
            let carrier = Carrier::new(&set, 1);
            thread::spawn(move || {
                let carrier = carrier;
                sleeps.store(true, Ordering::Relaxed);
                let saw = carrier.0.has_visible_work();
                drop(set);
                saw
            })
        };
        give_way(others_first);
        let own = Carrier::new(&set, 0);
        for &item in &items.0 {
            own.push(item, Origin::Spawn);
        }
        // Beyond the capacity of one item, surplus goes to the Waiver Queue; a single item goes to
        // the surplus slot.
        let taker = own.0.surplus(true);
        assert!(matches!(taker, Some(Taker::Any | Taker::Vp(1))));
        let woken = sleeps.load(Ordering::Relaxed);
        let saw = idle.join().unwrap();
        assert!(woken || saw, "lost wake-up");
        assert_eq!(drain(&set).len(), items.0.len());
    });
}

#[test]
fn batch_is_not_missed_by_a_vp_going_to_sleep() {
    sleeper(Design::Ring, 3);
    #[cfg(feature = "lab")]
    sleeper(Design::Locked, 3);
}

#[test]
fn offer_is_not_missed_by_a_vp_going_to_sleep() {
    sleeper(Design::Ring, 1);
    #[cfg(feature = "lab")]
    sleeper(Design::Locked, 1);
}

/// What the owner of a retired VP does before it sleeps: it hands over all that it has and is
/// given, announces its sleep, and checks once more. Returns whether something came meanwhile.
fn retire(set: &Set<Item>, carrier: &Carrier, sleeps: &AtomicBool) -> bool {
    hand_over(set, carrier);
    sleeps.store(true, Ordering::Relaxed);
    carrier.0.has_incoming()
}

fn hand_over(set: &Set<Item>, carrier: &Carrier) {
    for item in carrier.0.take_injected() {
        hold(item);
        carrier.push(item, Origin::Wake);
    }
    let _ = carrier.0.exchange();
    while let Some(item) = carrier.0.hand(0) {
        hold(item);
        // SAFETY: the item was handed to this thread.
        unsafe { set.inject(0, item) };
    }
}

/// VP 1 retires, while another thread gives it an item in the way of `give`, which returns whether
/// VP 1 must be woken if it sleeps. Either that thread finds it asleep and wakes it, or it finds
/// the item before it sleeps. After that, VP 0 alone reaches all items.
fn retired(give: fn(&Set<Item>, &Items) -> bool, items: usize) {
    check(Some(3), move |others_first| {
        let items = Items::new(items);
        let set = Arc::new(Set::with_places(Design::Ring, 2, Capacity::Fixed(1), 4));
        let sleeps = Arc::new(AtomicBool::new(false));
        let owner = {
            let (set, sleeps, items) = (set.clone(), sleeps.clone(), items.clone());
            let carrier = Carrier::new(&set, 1);
            thread::spawn(move || {
                let carrier = carrier;
                // Runnable there when the VP retires.
                carrier.push(items.0[0], Origin::Spawn);
                set.set_retired(1, true);
                let saw = retire(&set, &carrier, &sleeps);
                (saw, carrier)
            })
        };
        give_way(others_first);
        let must_wake = give(&set, &items);
        // The fence with which the wake-up of a VP begins.
        fence(Ordering::SeqCst);
        let woken = must_wake && sleeps.load(Ordering::Relaxed);
        let (saw, carrier) = owner.join().unwrap();
        if woken || saw {
            hand_over(&set, &carrier);
        }
        assert!(!carrier.0.has_incoming() && carrier.0.hand(0).is_none(), "an item was left");
        let own = Carrier::new(&set, 0);
        let mut found: Vec<_> = own.0.take_injected().map(hold).collect();
        own.0.pull();
        found.extend(std::iter::from_fn(|| own.0.pop()).map(|(item, _)| hold(item)));
        found.sort_unstable();
        assert_eq!(found, (0..items.0.len()).collect::<Vec<_>>());
    });
}

#[test]
fn item_injected_at_a_retiring_vp_is_handed_over() {
    fn give(set: &Set<Item>, items: &Items) -> bool {
        hold(items.0[1]);
        // SAFETY: the item is in no queue.
        unsafe { set.inject(1, items.0[1]) }
    }
    retired(give, 2);
}

#[test]
fn surplus_given_to_a_retiring_vp_is_handed_over() {
    fn give(set: &Set<Item>, items: &Items) -> bool {
        // SAFETY: this thread is the carrier of VP 0.
        let own = unsafe { set.local(0) };
        for &item in &items.0[1..] {
            hold(item);
            // SAFETY: the item is in no queue.
            unsafe { own.push(item, Place::back(9), Origin::Spawn) };
        }
        own.surplus(false) == Some(Taker::Vp(1))
    }
    retired(give, 4);
}
