//! Models of the retirement of a VP: its owner hands over what the VP has and parts from it, while
//! other threads send work and open the VP again.
//!
//! Invariants: the VP has one owner at a time, each item ends in one place, and a VP that is parked
//! has no work and is retired.

use loom::cell::UnsafeCell;
use loom::sync::Arc;

use super::super::*;

/// What only the owner accesses: the items that ran here.
struct Contents(UnsafeCell<u32>);
// SAFETY: the model checks that accesses are ordered; loom's cell panics on a race.
unsafe impl Sync for Contents {}
// SAFETY: as above.
unsafe impl Send for Contents {}

struct World {
    word: ParkWord,
    is_retired: AtomicU32,
    injector: AtomicU32,
    ran: Contents,
    /// Items handed to the VP that stays open.
    handed: AtomicU32,
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            word: ParkWord::new(false),
            is_retired: AtomicU32::new(1),
            injector: AtomicU32::new(0),
            ran: Contents(UnsafeCell::new(0)),
            handed: AtomicU32::new(0),
        })
    }

    fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed) != 0
    }

    /// Carries the VP until it is open, or parked. Returns whether it is open.
    fn carry(&self) -> bool {
        loop {
            let items = self.injector.swap(0, Ordering::AcqRel);
            let is_open = !self.is_retired();
            // SAFETY: access is exclusive if the protocol is right, which loom checks.
            self.ran.0.with_mut(|ran| unsafe { *ran |= if is_open { items } else { 0 } });
            if is_open {
                return true;
            }
            assert_eq!(self.handed.fetch_or(items, Ordering::AcqRel) & items, 0, "handed twice");
            self.word.begin();
            if self.injector.load(Ordering::Relaxed) != 0 || !self.is_retired() {
                self.word.cancel();
            } else if self.word.commit() {
                return false;
            }
            // After a failed commit, the next carrier is this thread: it returns from the pool.
        }
    }

    /// Ends the sending of work. The caller carries the VP if it must request a carrier: it stands
    /// for the thread of the pool.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.word.request() {
            self.carry();
        }
    }

    fn inject(&self, item: u32) {
        assert_eq!(self.injector.fetch_or(item, Ordering::AcqRel) & item, 0);
        self.wake();
    }

    fn open(&self) {
        self.is_retired.store(0, Ordering::Relaxed);
        self.wake();
    }
}

fn check(threads: &'static [fn(&World)], items: u32) {
    let mut model = loom::model::Builder::new();
    // As in `slot`: three preemptions reach every pair of steps.
    model.preemption_bound = Some(3);
    model.check(move || {
        let world = World::new();
        let others: Vec<_> = threads
            .iter()
            .map(|body| {
                let world = world.clone();
                loom::thread::spawn(move || body(&world))
            })
            .collect();
        world.carry();
        others.into_iter().for_each(|other| other.join().unwrap());
        // An open VP sleeps as an idle one does, and is woken there. A parked one has nobody.
        let left = world.injector.load(Ordering::Relaxed);
        if world.word.is_parked() {
            assert!(world.is_retired(), "an open VP is parked");
            assert_eq!(left, 0, "a parked VP has work");
        } else {
            assert!(!world.is_retired(), "a retired VP stays without being parked");
        }
        // SAFETY: all threads have ended.
        let ran = world.ran.0.with(|ran| unsafe { *ran });
        let handed = world.handed.load(Ordering::Relaxed);
        assert_eq!((ran & handed, left & (ran | handed)), (0, 0), "an item is in two places");
        assert_eq!(ran | handed | left, items, "an item is lost");
    });
}

#[test]
fn item_sent_to_a_retiring_vp_is_handed_over() {
    check(&[|world| world.inject(1)], 1);
}

#[test]
fn items_of_two_senders_are_handed_over() {
    check(&[|world| world.inject(1), |world| world.inject(2)], 3);
}

#[test]
fn vp_that_is_opened_while_it_retires_is_carried() {
    check(&[|world| world.open()], 0);
}

#[test]
fn vp_that_is_opened_while_work_arrives_runs_it() {
    check(&[|world| world.open(), |world| world.inject(1)], 1);
}

#[test]
fn vp_that_retires_again_is_parked() {
    check(
        &[|world| {
            world.open();
            world.is_retired.store(1, Ordering::Relaxed);
            world.wake();
            world.inject(1);
            world.open();
        }],
        1,
    );
}
