//! Models of a complete hand-off: a returning kernel thread, a spare and an injector run
//! concurrently. [`crate::slot`] and [`crate::return_queue`] have models of their own protocols.
//!
//! Invariants: a VP has one owner at a time (its carrier or the pool), its first timer fires once,
//! and each entry of its injector runs once.

use loom::cell::UnsafeCell;
use loom::sync::Arc;

use crate::handoff::return_queue::{Offer, Waiter};
use crate::handoff::slot::{Claim, Slot, token};
use crate::loom::atomic::{AtomicU32, AtomicU64, Ordering, fence};

const VP: u64 = token(3);
/// Bits of [`World::injector`]: an entry from another thread, and the entries of the two
/// microprocesses.
const OUTSIDE: u32 = 1;
const MICROPROCESS: u32 = 2;

/// The state of the VP. Only its owner accesses it.
struct Contents {
    timer_is_due: bool,
    fired: u32,
    ran: u32,
}

/// A kernel thread and the context of its microprocess (0: none).
struct Thread {
    slot: Slot,
    waiter: Waiter,
    context: AtomicU64,
    generation: AtomicU32,
}

struct World {
    threads: [Thread; 2],
    contents: UnsafeCell<Contents>,
    injector: AtomicU32,
    /// Whether the VP waits in the pool.
    is_ready: AtomicU32,
}

// SAFETY: the models check that accesses are ordered; loom's cell panics on a race.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new() -> Arc<World> {
        let thread = || Thread {
            slot: Slot::new(),
            waiter: Waiter::new(),
            context: AtomicU64::new(0),
            generation: AtomicU32::new(0),
        };
        Arc::new(World {
            threads: [thread(), thread()],
            contents: UnsafeCell::new(Contents { timer_is_due: true, fired: 0, ran: 0 }),
            injector: AtomicU32::new(0),
            is_ready: AtomicU32::new(0),
        })
    }

    fn own<R>(&self, f: impl FnOnce(&mut Contents) -> R) -> R {
        // SAFETY: access is exclusive if the protocols are right, which loom checks.
        self.contents.with_mut(|contents| f(unsafe { &mut *contents }))
    }

    /// Serves the timer and the injector, and returns the idle VP to the pool. Called by the owner.
    fn run(&self) {
        loop {
            self.own(|contents| {
                if std::mem::take(&mut contents.timer_is_due) {
                    contents.fired += 1;
                }
            });
            let came = self.injector.swap(0, Ordering::AcqRel);
            for entry in [OUTSIDE, MICROPROCESS, MICROPROCESS << 1]
                .into_iter()
                .filter(|entry| came & entry != 0)
            {
                self.pick(entry);
            }
            if came != 0 {
                continue;
            }
            self.is_ready.store(1, Ordering::Release);
            fence(Ordering::SeqCst);
            // An injector that ran before the store found no VP in the pool.
            if self.injector.load(Ordering::Relaxed) == 0 || !self.is_taken() {
                return;
            }
        }
    }

    /// Runs the microprocess of `entry`, unless the entry is dropped.
    fn pick(&self, entry: u32) {
        if entry != OUTSIDE {
            let thread = &self.threads[usize::from(entry != MICROPROCESS)];
            if thread.context.load(Ordering::Acquire) == 0 {
                match thread.waiter.offer(thread.generation.load(Ordering::Relaxed)) {
                    Offer::Accepted => panic!("no thread waits in these models"),
                    // The thread adds another entry when it enters the runtime.
                    Offer::EntryDropped => return,
                    Offer::Switchable => assert_ne!(thread.context.load(Ordering::Relaxed), 0),
                }
            }
        }
        self.own(|contents| contents.ran += 1);
    }

    /// Takes the VP out of the pool, if it is there.
    fn is_taken(&self) -> bool {
        self.is_ready.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Models a kernel thread in the pool, or one that enters it.
    fn take_from_pool(&self) {
        if self.is_taken() {
            self.run();
        }
    }

    /// Adds an entry and wakes a thread of the pool.
    fn inject(&self, entry: u32) {
        self.injector.fetch_or(entry, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        self.take_from_pool();
    }

    /// Checks the invariants after all threads have ended.
    fn check(&self, ran: u32) {
        assert!(self.is_taken(), "the VP is in the pool");
        assert_eq!(self.injector.load(Ordering::Relaxed), 0, "the injector is empty");
        self.own(|contents| {
            assert_eq!((contents.ran, contents.fired, contents.timer_is_due), (ran, 1, false))
        });
    }
}

fn check(bound: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(model);
}

/// A microprocess returns from a sleep while a spare accepts its VP. Either the microprocess keeps
/// the VP, or it becomes sticky and requests a VP when it waits in the runtime. Another thread
/// injects an entry at the same time.
#[test]
fn microprocess_becomes_sticky_while_a_spare_takes_its_vp() {
    check(3, || {
        let world = World::new();
        world.threads[0].slot.install(VP);
        world.threads[0].slot.unmask();
        // The event source lends the VP on the sleeper's core.
        assert!(world.threads[0].slot.lend());
        let spare = {
            let world = world.clone();
            loom::thread::spawn(move || match world.threads[0].slot.accept() {
                Claim::Taken(taken) => {
                    assert_eq!(taken, VP);
                    world.run();
                }
                Claim::Refused => world.take_from_pool(),
            })
        };
        let outside = {
            let world = world.clone();
            loom::thread::spawn(move || world.inject(OUTSIDE))
        };
        let one = &world.threads[0];
        let is_sticky = !one.slot.enter(VP);
        if is_sticky {
            // The microprocess waits in the runtime: its context is saved, and its thread enters
            // the pool.
            one.context.store(7, Ordering::Release);
            world.inject(MICROPROCESS);
        } else {
            // The microprocess continues and ends.
            one.slot.remove();
            world.run();
        }
        spare.join().unwrap();
        outside.join().unwrap();
        world.check(1 + u32::from(is_sticky));
    });
}

/// Both kernel threads of a full pool continued without a VP and now enter the runtime. One of them
/// must become the carrier, and each microprocess must run once: neither thread may wait for the
/// other.
#[test]
fn detached_threads_of_a_full_pool_carry_the_vp_again() {
    check(2, || {
        let world = World::new();
        world.is_ready.store(1, Ordering::Relaxed);
        for (thread, entry) in world.threads.iter().zip([MICROPROCESS, MICROPROCESS << 1]) {
            let generation = thread.waiter.begin(Some(0)).expect("a new entry");
            thread.generation.store(generation, Ordering::Relaxed);
            world.injector.fetch_or(entry, Ordering::Relaxed);
            thread.waiter.release(0);
            assert!(thread.waiter.is_detached());
        }
        let enter = |world: &World, index: usize| {
            let thread = &world.threads[index];
            thread.context.store(7, Ordering::Release);
            if thread.waiter.leave() {
                world.take_from_pool();
            } else {
                world.inject(MICROPROCESS << index);
            }
        };
        let other = {
            let world = world.clone();
            loom::thread::spawn(move || enter(&world, 1))
        };
        enter(&world, 0);
        other.join().unwrap();
        world.check(2);
    });
}
