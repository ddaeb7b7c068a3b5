use std::ffi::c_int;
use std::sync::Arc;

use loom::cell::Cell;
use loom::model::Builder;
use loom::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use loom::thread;

use crate::lock::condition;
use crate::lock::futex::futex;
use crate::lock::lot::{self, End, Kind};
use crate::lock::mutex;
use crate::lock::rwlock::{self, Side};
use crate::lock::semaphore;
use crate::lock::spin;
use crate::model::park::{self, Wait};
use crate::model::{HELD, Handle, Pair};
use crate::time::deadline::Deadline;

/// Explores `f`. `KUMI_LOOM_BOUND` raises the bound on preemptions.
fn explore(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let bound = std::env::var("KUMI_LOOM_BOUND").ok().and_then(|text| text.parse().ok());
    let mut builder = Builder::new();
    builder.preemption_bound = Some(bound.unwrap_or(preemptions));
    builder.max_branches = 10_000;
    builder.log = std::env::var_os("LOOM_LOG").is_some();
    builder.check(f);
}

/// What a lock protects. Loom reports two accesses without an order.
struct Guarded {
    pair: Box<Pair>,
    value: Cell<u32>,
}

// SAFETY: loom checks accesses to the cell.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new(first: u32) -> Arc<Guarded> {
        Guarded::of(Pair::new(first, 0))
    }

    fn of(pair: Box<Pair>) -> Arc<Guarded> {
        Arc::new(Guarded { pair, value: Cell::new(0) })
    }

    fn object(&self) -> Handle {
        self.pair.first()
    }

    fn add(&self) {
        self.value.set(self.value.get() + 1);
    }
}

fn lock_mutex(object: Handle, deadline: Deadline) -> c_int {
    // SAFETY: an object of the model; so below.
    unsafe { mutex::lock_until(object.as_ptr(), || Ok(deadline), |_| unreachable!()) }
}

fn unlock_mutex(object: Handle) {
    // SAFETY: an object of the model.
    assert_eq!(unsafe { mutex::unlock(object.as_ptr()) }, 0);
}

/// Runs `others` and, as the main thread, `f`.
fn beside<const N: usize>(others: [Box<dyn FnOnce() + Send>; N], f: impl FnOnce()) {
    let others = others.map(|other| thread::spawn(other));
    f();
    for other in others {
        other.join().unwrap();
    }
}

fn increments(guarded: &Arc<Guarded>, deadline: Deadline) -> Box<dyn FnOnce() + Send> {
    let guarded = guarded.clone();
    Box::new(move || match lock_mutex(guarded.object(), deadline) {
        0 => {
            guarded.add();
            unlock_mutex(guarded.object());
        }
        error => assert_eq!(error, libc::ETIMEDOUT),
    })
}

#[test]
fn mutex_wakes_its_waiter() {
    explore(4, || {
        let guarded = Guarded::new(0);
        beside([increments(&guarded, Deadline::Never)], increments(&guarded, Deadline::Never));
        assert_eq!(guarded.value.get(), 2);
    });
}

#[test]
fn mutex_of_three_threads_wakes_each_waiter() {
    explore(2, || {
        let guarded = Guarded::new(0);
        let others = [increments(&guarded, Deadline::Never), increments(&guarded, Deadline::Never)];
        beside(others, increments(&guarded, Deadline::Never));
        assert_eq!(guarded.value.get(), 3);
    });
}

/// A waiter that gives up takes no wake-up from another one.
#[test]
fn timed_out_waiter_of_a_mutex_loses_no_wake_up() {
    explore(2, || {
        let guarded = Guarded::new(0);
        let main = park::current();
        let others = [increments(&guarded, Deadline::Never), increments(&guarded, Deadline::Never)];
        let clock = thread::spawn(move || main.expire());
        beside(others, increments(&guarded, Deadline::Once));
        clock.join().unwrap();
        assert!(guarded.value.get() >= 2);
    });
}

/// One side waits under the mutex for the other one's change.
#[test]
fn condition_wakes_the_waiter_that_has_released_its_mutex() {
    for broadcast in [false, true] {
        explore(3, move || {
            let guarded = Guarded::new(0);
            let waiter = {
                let guarded = guarded.clone();
                Box::new(move || {
                    let (object, other) = (guarded.object(), guarded.pair.second());
                    assert_eq!(lock_mutex(object, Deadline::Never), 0);
                    while guarded.value.get() == 0 {
                        // SAFETY: objects of the model.
                        let waited = unsafe {
                            condition::wait(other.as_ptr(), object.as_ptr(), Deadline::Never)
                        };
                        assert_eq!(waited, 0);
                    }
                    unlock_mutex(object);
                })
            };
            beside([waiter], || {
                let object = guarded.object();
                assert_eq!(lock_mutex(object, Deadline::Never), 0);
                guarded.add();
                unlock_mutex(object);
                condition::wake(
                    guarded.pair.second().as_ptr(),
                    if broadcast { usize::MAX } else { 1 },
                );
            });
        });
    }
}

/// Of two waiters one gives up. A signal that it consumed would be lost to the other one.
#[test]
fn signal_reaches_a_waiter_that_stays() {
    explore(2, || {
        let guarded = Guarded::new(0);
        let waiter = |deadline| {
            let guarded = guarded.clone();
            move || {
                let (object, other) = (guarded.object(), guarded.pair.second());
                assert_eq!(lock_mutex(object, Deadline::Never), 0);
                let mut done = 0;
                while guarded.value.get() == 0 && done == 0 {
                    // SAFETY: objects of the model.
                    done = unsafe { condition::wait(other.as_ptr(), object.as_ptr(), deadline) };
                }
                // A time-out is not reported by a waiter that has consumed the signal.
                if done == 0 {
                    guarded.value.set(guarded.value.get() - 1);
                } else {
                    assert_eq!(done, libc::ETIMEDOUT);
                }
                unlock_mutex(object);
                done
            }
        };
        let main = park::current();
        let stays = thread::spawn(waiter(Deadline::Never));
        let signals = {
            let guarded = guarded.clone();
            thread::spawn(move || {
                let object = guarded.object();
                for _ in 0..2 {
                    assert_eq!(lock_mutex(object, Deadline::Never), 0);
                    guarded.add();
                    unlock_mutex(object);
                    condition::wake(guarded.pair.second().as_ptr(), 1);
                }
                main.expire();
            })
        };
        let done = waiter(Deadline::Once)();
        assert_eq!(stays.join().unwrap(), 0);
        signals.join().unwrap();
        assert_eq!(guarded.value.get(), u32::from(done != 0));
    });
}

fn with_rwlock(guarded: &Guarded, side: Side, deadline: Deadline, f: impl FnOnce()) -> c_int {
    let lock = guarded.object().as_ptr();
    // SAFETY: an object of the model.
    let done = unsafe { rwlock::lock_until(lock, side, || Ok(deadline), |_| unreachable!()) };
    if done == 0 {
        f();
        // SAFETY: an object of the model.
        assert_eq!(unsafe { rwlock::unlock(lock) }, 0);
    }
    done
}

fn writes(guarded: &Arc<Guarded>, deadline: Deadline) -> Box<dyn FnOnce() + Send> {
    let guarded = guarded.clone();
    Box::new(move || {
        let done = with_rwlock(&guarded, Side::Write, deadline, || guarded.add());
        assert!(done == 0 || done == libc::ETIMEDOUT);
    })
}

fn reads(guarded: &Arc<Guarded>, deadline: Deadline) -> Box<dyn FnOnce() + Send> {
    let guarded = guarded.clone();
    Box::new(move || {
        let done = with_rwlock(&guarded, Side::Read, deadline, || {
            guarded.value.get();
        });
        assert!(done == 0 || done == libc::ETIMEDOUT);
    })
}

/// Index of the kind of a lock among its words, and the kind that prefers writers.
const PREFERS_WRITERS: (usize, u32) = (12, 2);

#[test]
fn reader_and_writers_of_a_lock_progress() {
    for kind in [0, PREFERS_WRITERS.1] {
        explore(2, move || {
            let pair = Pair::new(0, 0).with_word(PREFERS_WRITERS.0, kind);
            let guarded = Guarded::of(pair);
            let others = [writes(&guarded, Deadline::Never), reads(&guarded, Deadline::Never)];
            beside(others, writes(&guarded, Deadline::Never));
            assert_eq!(guarded.value.get(), 2);
        });
    }
}

/// A reader that waits only for a writer goes on after the writer has given up.
#[test]
fn writer_that_gives_up_lets_readers_pass() {
    for kind in [0, PREFERS_WRITERS.1] {
        explore(2, move || {
            let pair = Pair::new(0, 0).with_word(PREFERS_WRITERS.0, kind);
            let guarded = Guarded::of(pair);
            let main = park::current();
            let clock = thread::spawn(move || main.expire());
            let others = [reads(&guarded, Deadline::Never), reads(&guarded, Deadline::Never)];
            beside(others, writes(&guarded, Deadline::Once));
            clock.join().unwrap();
        });
    }
}

/// A writer that gives up wakes readers that wait for nothing else: a reader holds the lock all the
/// time.
#[test]
fn reader_passes_after_the_writer_has_given_up() {
    explore(3, || {
        let pair = Pair::new(1, 0).with_word(PREFERS_WRITERS.0, PREFERS_WRITERS.1);
        let guarded = Guarded::of(pair);
        let reader = thread::spawn(reads(&guarded, Deadline::Never));
        let main = park::current();
        let clock = thread::spawn(move || main.expire());
        writes(&guarded, Deadline::Once)();
        reader.join().unwrap();
        clock.join().unwrap();
        assert_eq!(guarded.value.get(), 0, "a reader has it");
    });
}

/// Readers that wait for a writer go on together: one of them keeps the lock until the other one
/// has had it.
#[test]
fn readers_hold_a_lock_together() {
    explore(2, || {
        let guarded = Guarded::new(HELD);
        let other = thread::spawn(reads(&guarded, Deadline::Never));
        let writer = {
            let guarded = guarded.clone();
            // SAFETY: an object of the model.
            thread::spawn(move || unsafe { rwlock::unlock(guarded.object().as_ptr()) })
        };
        let done = with_rwlock(&guarded, Side::Read, Deadline::Never, || other.join().unwrap());
        assert_eq!(done, 0);
        assert_eq!(writer.join().unwrap(), 0);
    });
}

fn takes(guarded: &Arc<Guarded>, deadline: Deadline) -> impl FnOnce() -> c_int + Send + use<> {
    let guarded = guarded.clone();
    // SAFETY: an object of the model.
    move || unsafe {
        semaphore::wait_until(guarded.object().as_ptr(), || Ok(deadline), |_| unreachable!())
    }
}

#[test]
fn semaphore_passes_each_unit_on() {
    explore(2, || {
        let guarded = Guarded::new(0);
        let takers = [(); 2].map(|()| thread::spawn(takes(&guarded, Deadline::Never)));
        for _ in 0..2 {
            // SAFETY: an object of the model.
            assert_eq!(unsafe { semaphore::post(guarded.object().as_ptr()) }, 0);
        }
        for taker in takers {
            assert_eq!(taker.join().unwrap(), 0);
        }
        assert_eq!(guarded.object().state().load(Relaxed), 0);
    });
}

/// The taker that gives up leaves the unit and its wake-up to the other one.
#[test]
fn timed_out_taker_of_a_unit_loses_none() {
    explore(3, || {
        let guarded = Guarded::new(0);
        let main = park::current();
        let taker = thread::spawn(takes(&guarded, Deadline::Never));
        let poster = {
            let guarded = guarded.clone();
            thread::spawn(move || {
                // SAFETY: an object of the model.
                assert_eq!(unsafe { semaphore::post(guarded.object().as_ptr()) }, 0);
                main.expire();
            })
        };
        if takes(&guarded, Deadline::Once)() == 0 {
            // SAFETY: an object of the model.
            assert_eq!(unsafe { semaphore::post(guarded.object().as_ptr()) }, 0);
        }
        assert_eq!(taker.join().unwrap(), 0);
        poster.join().unwrap();
        assert_eq!(guarded.object().state().load(Relaxed), 0);
    });
}

#[test]
fn spin_lock_wakes_its_waiter() {
    explore(2, || {
        let guarded = Guarded::new(0);
        let add = |guarded: Arc<Guarded>| {
            let lock = guarded.object().as_ptr();
            // SAFETY: an object of the model.
            unsafe {
                spin::lock(lock);
                guarded.add();
                spin::unlock(lock);
            }
        };
        let other = guarded.clone();
        beside([Box::new(move || add(other))], || add(guarded.clone()));
        assert_eq!(guarded.value.get(), 2);
    });
}

const PRIVATE: c_int = libc::FUTEX_PRIVATE_FLAG;

fn futex_wait(word: usize, value: u32, deadline: Deadline) -> i64 {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let time = match deadline {
        Deadline::Never => 0,
        Deadline::Once => (&raw const time).expose_provenance(),
    };
    // SAFETY: a word of the model and a live time; so below.
    unsafe { futex(word, libc::FUTEX_WAIT | PRIVATE, value, time, 0, 0) }.expect("handled")
}

fn futex_wake(word: usize, most: u32) -> i64 {
    // SAFETY: an object of the model.
    unsafe { futex(word, libc::FUTEX_WAKE | PRIVATE, most, 0, 0, 0) }.expect("handled")
}

/// A wake-up that is posted while another thread has the bucket's lock is not lost.
#[test]
fn posted_wake_up_reaches_the_waiter() {
    explore(3, || {
        let guarded = Guarded::new(0);
        let waiters: Vec<Box<dyn FnOnce() + Send>> = (0..2)
            .map(|_| {
                let other = guarded.clone();
                Box::new(move || {
                    while other.object().state().load(Relaxed) == 0 {
                        futex_wait(other.object().word(), 0, Deadline::Never);
                    }
                }) as Box<dyn FnOnce() + Send>
            })
            .collect();
        let Ok(waiters) = <[_; 2]>::try_from(waiters) else { unreachable!() };
        beside(waiters, || {
            guarded.object().state().store(1, Release);
            loom::sync::atomic::fence(SeqCst);
            lot::post(guarded.object().word());
        });
    });
}

/// The program changes the word by a plain store, which a load may overtake.
#[test]
fn futex_wakes_the_waiter_that_has_not_seen_the_change() {
    explore(4, || {
        let guarded = Guarded::new(0);
        let other = guarded.clone();
        let waiter = Box::new(move || {
            while other.object().state().load(Relaxed) == 0 {
                futex_wait(other.object().word(), 0, Deadline::Never);
            }
        });
        beside([waiter], || {
            guarded.object().state().store(1, Release);
            futex_wake(guarded.object().word(), 1);
        });
    });
}

#[test]
fn timed_out_futex_wait_consumes_no_wake_up() {
    explore(2, || {
        let guarded = Guarded::new(0);
        let main = park::current();
        let word = guarded.object().word();
        let stays = {
            let guarded = guarded.clone();
            thread::spawn(move || futex_wait(guarded.object().word(), 0, Deadline::Never))
        };
        let wakes = {
            let guarded = guarded.clone();
            thread::spawn(move || {
                let mut woken = futex_wake(guarded.object().word(), 1);
                main.expire();
                guarded.object().state().store(1, Release);
                woken += futex_wake(guarded.object().word(), u32::MAX >> 1);
                woken
            })
        };
        let own = futex_wait(word, 0, Deadline::Once);
        let other = stays.join().unwrap();
        let returned = i64::from(own == 0) + i64::from(other == 0);
        assert_eq!(returned, wakes.join().unwrap(), "each wake-up ends one wait");
    });
}

/// A requeue moves waiters from one word to another, in another bucket, while one gives up.
#[test]
fn requeued_waiters_are_woken_where_they_are() {
    for command in [libc::FUTEX_REQUEUE, libc::FUTEX_CMP_REQUEUE] {
        explore(2, move || {
            let guarded = Guarded::new(0);
            let main = park::current();
            let (from, to) = (guarded.object(), guarded.pair.second());
            let clock = thread::spawn(move || main.expire());
            let stays = {
                let guarded = guarded.clone();
                thread::spawn(move || futex_wait(guarded.object().word(), 0, Deadline::Never))
            };
            let moves = {
                let guarded = guarded.clone();
                thread::spawn(move || {
                    let (from, to) = (guarded.object(), guarded.pair.second());
                    from.state().store(1, Release);
                    let command = command | PRIVATE;
                    // SAFETY: words of the model.
                    unsafe { futex(from.word(), command, 0, 1, to.word(), 1) };
                    futex_wake(to.word(), 2);
                    futex_wake(from.word(), 2);
                })
            };
            futex_wait(from.word(), 0, Deadline::Once);
            stays.join().unwrap();
            moves.join().unwrap();
            clock.join().unwrap();
            let is_empty = !lot::may_wait(from.word()) && !lot::may_wait(to.word());
            assert!(is_empty, "each count is right");
        });
    }
}

/// A requeue alone, after a plain store. The waiter is found by the requeue or sees the store.
#[test]
fn requeue_finds_the_waiter_that_has_not_seen_the_change() {
    explore(4, || {
        let guarded = Guarded::new(0);
        let waiter = {
            let guarded = guarded.clone();
            thread::spawn(move || futex_wait(guarded.object().word(), 0, Deadline::Never))
        };
        let (from, to) = (guarded.object(), guarded.pair.second());
        from.state().store(1, Release);
        let command = libc::FUTEX_REQUEUE | PRIVATE;
        // SAFETY: words of the model.
        unsafe { futex(from.word(), command, 1, 1, to.word(), 0) };
        waiter.join().unwrap();
    });
}

/// The lot alone: a waiter that leaves, beside a waker and a requeue.
#[test]
fn waiter_that_leaves_is_taken_out_once() {
    explore(3, || {
        let guarded = Guarded::new(0);
        let (from, to) = (guarded.object().word(), guarded.pair.second().word());
        let main = park::current();
        let clock = thread::spawn(move || main.expire());
        let other = {
            let guarded = guarded.clone();
            thread::spawn(move || {
                let (from, to) = (guarded.object().word(), guarded.pair.second().word());
                let moved = lot::requeue(from, to, 1, |_| true);
                let woken = lot::wake(to, 1, |_| true);
                assert!(woken <= moved);
                woken
            })
        };
        let why = Wait::Futex(from);
        let end = lot::wait(from, Kind::Futex(1), why, Deadline::Once.instant(), |_| true);
        let woken = other.join().unwrap();
        assert_eq!(woken == 1, end == End::Woken, "{end:?}");
        clock.join().unwrap();
        assert!(!lot::may_wait(from) && !lot::may_wait(to));
    });
}

/// All but the last of a round wait until the last one has arrived.
#[test]
fn barrier_lets_a_round_go() {
    explore(3, || {
        // The third word is the number of threads.
        let guarded = Guarded::of(Pair::new(0, 0).with_word(2, 2));
        let arrive = |guarded: Arc<Guarded>| {
            // SAFETY: an object of the model.
            unsafe { crate::lock::barrier::wait(guarded.object().as_ptr()) }
        };
        let other = guarded.clone();
        let other = thread::spawn(move || [(); 2].map(|()| arrive(other.clone())));
        let own = [(); 2].map(|()| arrive(guarded.clone()));
        let other = other.join().unwrap();
        for (own, other) in own.into_iter().zip(other) {
            assert_eq!(own + other, libc::PTHREAD_BARRIER_SERIAL_THREAD, "one serial thread");
        }
    });
}
