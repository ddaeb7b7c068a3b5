//! The protocols of a hand-off together, as models: a kernel thread that returns, a spare, and whoever makes something runnable from
//! outside. [`crate::slot`] and [`crate::turn`] have a model of each by itself.
//!
//! What they share is reduced to what a virtual processor must not lose: *its injector*, *its first timer*, and that it has *one owner at
//! a time*: a kernel thread that carries it, or the pool, from which the next one takes it.

use loom::cell::UnsafeCell;
use loom::sync::Arc;

use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::slot::{Claim, Slot, token};
use crate::turn::{Offer, Turn};

const VP: u64 = token(3);
/// In [`Whole::injector`]: what came from outside; after it the microprocesses, from their kernel threads' numbers.
const OUTSIDE: u32 = 1;
const MICROPROCESS: u32 = 2;

/// What only the owner of the virtual processor touches.
struct Contents {
    timer_is_due: bool,
    fired: u32,
    ran: u32,
}

/// A kernel thread: its slot, its turn, and what its microprocess can be switched to by.
struct Thread {
    slot: Slot,
    turn: Turn,
    context: AtomicU64,
}

struct Whole {
    threads: [Thread; 2],
    contents: UnsafeCell<Contents>,
    injector: AtomicU32,
    /// The virtual processor waits in the pool for a kernel thread.
    is_ready: AtomicU32,
}

// SAFETY: the models check that accesses are ordered; loom's cell panics on a race.
unsafe impl Sync for Whole {}
// SAFETY: as above.
unsafe impl Send for Whole {}

impl Whole {
    fn new() -> Arc<Whole> {
        let thread = || Thread { slot: Slot::new(), turn: Turn::new(), context: AtomicU64::new(0) };
        Arc::new(Whole {
            threads: [thread(), thread()],
            contents: UnsafeCell::new(Contents { timer_is_due: true, fired: 0, ran: 0 }),
            injector: AtomicU32::new(0),
            is_ready: AtomicU32::new(0),
        })
    }

    fn own<R>(&self, f: impl FnOnce(&mut Contents) -> R) -> R {
        // SAFETY: exclusive if the protocols are right, which loom checks.
        self.contents.with_mut(|contents| f(unsafe { &mut *contents }))
    }

    /// By the owner: looks after the timer and the injector, and gives the virtual processor to the pool when there is nothing left.
    fn run(&self) {
        loop {
            self.own(|contents| {
                if std::mem::take(&mut contents.timer_is_due) {
                    contents.fired += 1;
                }
            });
            let came = self.injector.swap(0, Ordering::AcqRel);
            for entry in [OUTSIDE, MICROPROCESS, MICROPROCESS << 1].into_iter().filter(|entry| came & entry != 0) {
                if !self.pick(entry) {
                    // Handed over: whoever has it looks after the rest, which is put back first.
                    return;
                }
            }
            if came != 0 {
                continue;
            }
            self.is_ready.store(1, Ordering::Release);
            fence(Ordering::SeqCst);
            // Against one that came in between: it found no virtual processor in the pool.
            if self.injector.load(Ordering::Relaxed) == 0 || !self.is_taken() {
                return;
            }
        }
    }

    /// Runs what was picked. False: the virtual processor went to its kernel thread.
    fn pick(&self, entry: u32) -> bool {
        if entry != OUTSIDE {
            let thread = &self.threads[usize::from(entry != MICROPROCESS)];
            if thread.context.load(Ordering::Acquire) == 0 {
                match thread.turn.offer() {
                    Offer::Taken => panic!("nobody waits in these models"),
                    // It makes another one when it enters the runtime.
                    Offer::WentOn => return true,
                    Offer::HasLeft => assert_ne!(thread.context.load(Ordering::Relaxed), 0),
                }
            }
        }
        self.own(|contents| contents.ran += 1);
        true
    }

    /// The caller takes the virtual processor out of the pool, if it is there.
    fn is_taken(&self) -> bool {
        self.is_ready.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// By one that is in the pool, or comes there.
    fn take_from_pool(&self) {
        if self.is_taken() {
            self.run();
        }
    }

    /// Something is runnable, and somebody is woken who takes the virtual processor if it is in the pool.
    fn inject(&self, entry: u32) {
        self.injector.fetch_or(entry, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        self.take_from_pool();
    }

    /// At the end of all: one owner more, and nothing is left or was done twice.
    fn check(&self, ran: u32) {
        assert!(self.is_taken(), "the virtual processor is in the pool");
        assert_eq!(self.injector.load(Ordering::Relaxed), 0, "nothing waits for it");
        self.own(|contents| assert_eq!((contents.ran, contents.fired, contents.timer_is_due), (ran, 1, false)));
    }
}

fn check(bound: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.check(model);
}

/// A microprocess sleeps in an unknown call and is back at any moment: it keeps its virtual processor; or it has lost it, is sticky from
/// there, and wants one again when it waits in the runtime, while something else comes from outside.
#[test]
fn one_becomes_sticky_while_its_virtual_processor_goes_on() {
    check(3, || {
        let whole = Whole::new();
        whole.threads[0].slot.install(VP);
        whole.threads[0].slot.unmask();
        // By the source, on its core.
        assert!(whole.threads[0].slot.lend());
        let spare = {
            let whole = whole.clone();
            loom::thread::spawn(move || match whole.threads[0].slot.accept() {
                Claim::Taken(taken) => {
                    assert_eq!(taken, VP);
                    whole.run();
                }
                Claim::Refused => whole.take_from_pool(),
            })
        };
        let outside = {
            let whole = whole.clone();
            loom::thread::spawn(move || whole.inject(OUTSIDE))
        };
        let one = &whole.threads[0];
        let is_sticky = !one.slot.enter(VP);
        if is_sticky {
            // Until it waits in the runtime: it leaves its stack, and then its kernel thread is one of the pool's.
            one.context.store(7, Ordering::Release);
            whole.inject(MICROPROCESS);
        } else {
            // It runs on, and idles.
            one.slot.remove();
            whole.run();
        }
        spare.join().unwrap();
        outside.join().unwrap();
        whole.check(1 + u32::from(is_sticky));
    });
}

/// The limit is reached: the only two kernel threads have come back, wanted a turn, were excused since nobody was left to carry, and now
/// enter the runtime. One of them must come to carry, and both microprocesses go on, once. (Each waited on its kernel thread for its turn.)
#[test]
fn at_the_limit_those_that_went_on_come_back() {
    check(2, || {
        let whole = Whole::new();
        whole.is_ready.store(1, Ordering::Relaxed);
        for (thread, entry) in whole.threads.iter().zip([MICROPROCESS, MICROPROCESS << 1]) {
            assert!(thread.turn.begin(Some(0)));
            whole.injector.fetch_or(entry, Ordering::Relaxed);
            thread.turn.excuse(0);
            assert!(thread.turn.is_astray());
        }
        let enter = |whole: &Whole, index: usize| {
            let thread = &whole.threads[index];
            thread.context.store(7, Ordering::Release);
            if thread.turn.leave() {
                whole.take_from_pool();
            } else {
                whole.inject(MICROPROCESS << index);
            }
        };
        let other = {
            let whole = whole.clone();
            loom::thread::spawn(move || enter(&whole, 1))
        };
        enter(&whole, 0);
        other.join().unwrap();
        whole.check(2);
    });
}
