//! RwLock, Once, OnceLock, LazyLock, Barrier on kernel threads.
#![cfg(not(loom))]

mod seed;

use kumihimo_sync::{Barrier, LazyLock, Once, OnceLock, RwLock, RwLockWriteGuard, TryLockError};
use seed::{Rng, crew, seed};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn rwlock_excludes_under_mixed_use() {
    let seed = seed("rwlock_excludes_under_mixed_use");
    let lock = RwLock::new((0u64, 0u64));
    let done: u64 = crew(|s| {
        let threads: Vec<_> = (0..8)
            .map(|t| {
                let lock = &lock;
                s.scope.spawn(move || {
                    let (mut rng, mut done) = (Rng::new(seed, t), 0);
                    for _ in 0..10_000 {
                        if rng.below(3) != 0 {
                            let guard = match rng.below(4) {
                                0 => lock.try_read().ok(),
                                1 => lock.read_timeout(Duration::from_micros(rng.below(50))).ok(),
                                _ => Some(lock.read().unwrap()),
                            };
                            if let Some(guard) = guard {
                                if rng.below(64) == 0 {
                                    thread::yield_now();
                                }
                                assert_eq!(guard.0, guard.1);
                            }
                            continue;
                        }
                        let guard = match rng.below(4) {
                            0 => lock.try_write().ok(),
                            1 => lock.write_timeout(Duration::from_micros(rng.below(50))).ok(),
                            _ => Some(lock.write().unwrap()),
                        };
                        if let Some(mut guard) = guard {
                            guard.0 += 1;
                            if rng.below(64) == 0 {
                                thread::yield_now();
                            }
                            guard.1 += 1;
                            done += 1;
                            if rng.below(4) == 0 {
                                let seen = guard.1;
                                let guard = RwLockWriteGuard::downgrade(guard);
                                assert_eq!(guard.0, seen);
                            }
                        }
                    }
                    done
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(*lock.read().unwrap(), (done, done));
}

#[test]
fn rwlock_excludes_and_poisons() {
    let mut lock = RwLock::from(1);
    {
        let (a, b) = (lock.read().unwrap(), lock.try_read().unwrap());
        assert!(matches!(lock.try_write(), Err(TryLockError::WouldBlock)));
        assert!(matches!(lock.write_until(Instant::now()), Err(TryLockError::WouldBlock)));
        assert_eq!(*a + *b, 2);
    }
    {
        let _guard = lock.write().unwrap();
        assert!(matches!(lock.try_read(), Err(TryLockError::WouldBlock)));
        assert!(catch_unwind(|| drop(lock.read())).is_err());
        assert!(catch_unwind(|| drop(lock.write())).is_err());
        assert_eq!(format!("{lock:?}"), "RwLock { data: <locked>, poisoned: false, .. }");
    }
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lock.write().unwrap();
        panic!("on purpose");
    }));
    assert!(lock.is_poisoned() && lock.read().is_err() && lock.get_mut().is_err());
    lock.clear_poison();
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lock.read().unwrap();
        panic!("on purpose");
    }));
    assert_eq!(lock.into_inner().unwrap(), 1);
}

/// Readers queue behind a writer, and get the lock at once when the writer gives up.
#[test]
fn rwlock_writer_time_out_admits_readers() {
    let lock = RwLock::new(());
    let first = lock.read().unwrap();
    crew(|s| {
        s.spawn(|| assert!(lock.write_timeout(Duration::from_millis(5)).is_err()));
        s.scope.spawn(|| drop(lock.read().unwrap())).join().unwrap();
        s.scope.spawn(|| drop(lock.read().unwrap())).join().unwrap();
    });
    drop(first);
}

#[test]
fn once_runs_once_while_callers_wait() {
    for _ in 0..200 {
        let (once, count) = (Once::new(), AtomicUsize::new(0));
        crew(|s| {
            s.spawn(|| {
                once.wait();
                assert_eq!(count.load(Ordering::Relaxed), 1);
            });
            for _ in 0..4 {
                s.spawn(|| {
                    once.call_once(|| {
                        thread::yield_now();
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                    assert_eq!(count.load(Ordering::Relaxed), 1);
                });
            }
        });
        assert!(once.is_completed());
    }
}

#[test]
fn panic_poisons_once() {
    let once = Once::new();
    assert!(catch_unwind(|| once.call_once(|| panic!("on purpose"))).is_err());
    assert!(catch_unwind(|| once.call_once(|| ())).is_err());
    assert!(catch_unwind(|| once.wait()).is_err());
    crew(|s| {
        s.spawn(|| once.wait_force());
        once.call_once_force(|state| assert!(state.is_poisoned()));
    });
    once.call_once(|| unreachable!());
}

#[test]
fn recursive_initialisation_panics() {
    let once = Once::new();
    assert!(catch_unwind(|| once.call_once(|| once.call_once(|| ()))).is_err());
    let cell = OnceLock::new();
    assert!(catch_unwind(|| cell.get_or_init(|| *cell.get_or_init(|| 1))).is_err());
    assert_eq!(cell.get_or_init(|| 2), &2);
    static LAZY: LazyLock<u8> = LazyLock::new(|| *LAZY);
    assert!(catch_unwind(|| *LAZY).is_err());
}

#[test]
fn timed_waits_end_on_completion_only() {
    let (once, cell, short) = (Once::new(), OnceLock::new(), Duration::from_micros(200));
    assert!(!once.wait_timeout(short) && !once.wait_until(Instant::now()));
    assert!(cell.wait_timeout(short).is_none() && cell.wait_until(Instant::now()).is_none());
    // A `Once` counts as incomplete while it is poisoned and while its closure runs.
    assert!(catch_unwind(|| once.call_once(|| panic!("on purpose"))).is_err());
    assert!(catch_unwind(|| once.wait_timeout(short)).is_err());
    crew(|s| {
        s.spawn(|| while !catch_unwind(|| once.wait_timeout(short)).is_ok_and(|done| done) {});
        s.spawn(|| while cell.wait_until(Instant::now() + short).is_none() {});
        for _ in 0..50 {
            assert!(catch_unwind(|| once.call_once_force(|_| panic!("again"))).is_err());
            thread::yield_now();
        }
        once.call_once_force(|_| ());
        cell.set(1).unwrap();
    });
    assert!(once.wait_timeout(Duration::ZERO));
    assert_eq!(cell.wait_timeout(Duration::MAX), Some(&1));
}

#[test]
fn oncelock_is_written_once() {
    let token = Arc::new(());
    let mut cell = OnceLock::new();
    assert_eq!(format!("{cell:?}"), "OnceLock(<uninit>)");
    assert!(catch_unwind(AssertUnwindSafe(|| cell.get_or_init(|| panic!("on purpose")))).is_err());
    crew(|s| {
        s.spawn(|| assert!(Arc::ptr_eq(cell.wait(), &token)));
        for _ in 0..3 {
            s.spawn(|| assert!(Arc::ptr_eq(cell.get_or_init(|| token.clone()), &token)));
        }
    });
    assert!(cell.set(token.clone()).is_err());
    assert!(cell.get_mut().is_some() && cell == cell.clone());
    assert!(cell.take().is_some() && cell.get().is_none());
    cell.set(token.clone()).unwrap();
    drop(cell);
    assert_eq!(OnceLock::from(3).into_inner(), Some(3));
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn lazylock_computes_once() {
    let (token, runs) = (Arc::new(()), AtomicUsize::new(0));
    let lazy = LazyLock::new(|| {
        runs.fetch_add(1, Ordering::Relaxed);
        token.clone()
    });
    assert_eq!(format!("{lazy:?}"), "LazyLock(<uninit>)");
    crew(|s| {
        for _ in 0..4 {
            s.spawn(|| assert!(Arc::ptr_eq(&lazy, &token)));
        }
    });
    assert_eq!(format!("{lazy:?}"), "LazyLock(())");
    drop(lazy);
    assert_eq!((runs.load(Ordering::Relaxed), Arc::strong_count(&token)), (1, 1));
    let held = token.clone();
    let unused = LazyLock::<(), _>::new(move || drop(held));
    drop(unused);
    let held = token.clone();
    let bad = LazyLock::<(), _>::new(move || {
        let _held = held;
        panic!("on purpose")
    });
    assert!(catch_unwind(AssertUnwindSafe(|| *bad)).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| *bad)).is_err());
    drop(bad);
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn barrier_elects_one_leader_a_round() {
    let (barrier, leaders, round) = (Barrier::new(4), AtomicUsize::new(0), AtomicUsize::new(0));
    crew(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for n in 0..2_000 {
                    assert_eq!(round.load(Ordering::Relaxed), n);
                    if barrier.wait().is_leader() {
                        leaders.fetch_add(1, Ordering::Relaxed);
                        round.fetch_add(1, Ordering::Relaxed);
                    }
                    barrier.wait();
                }
            });
        }
    });
    assert_eq!(leaders.into_inner(), 2_000);
    assert!(Barrier::new(0).wait().is_leader());
    assert!(Barrier::new(1).wait().is_leader());
}

/// A caller that gives up does not count as arrived.
#[test]
fn barrier_time_out_leaves_the_round() {
    let seed = seed("barrier_time_out_leaves_the_round");
    let (barrier, passed) = (Barrier::new(3), AtomicUsize::new(0));
    assert!(barrier.wait_timeout(Duration::from_millis(1)).is_none());
    crew(|s| {
        for t in 0..3 {
            let (barrier, passed) = (&barrier, &passed);
            s.spawn(move || {
                let (mut rng, mut left) = (Rng::new(seed, t), 500);
                while left > 0 {
                    if barrier.wait_timeout(Duration::from_micros(rng.below(100))).is_some()
                        || barrier
                            .wait_until(Instant::now() + Duration::from_micros(rng.below(100)))
                            .is_some()
                    {
                        left -= 1;
                        passed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(passed.into_inner(), 1_500);
}

#[test]
fn oncelock_may_hold_a_borrow_that_ends_first() {
    let cell = OnceLock::new();
    {
        let text = String::from("borrowed");
        cell.set(&text).expect("empty");
        assert_eq!(cell.get().map(|text| text.as_str()), Some("borrowed"));
    }
    // Compiles only if dropping the cell does not access the value's borrow (the drop check).
}

#[test]
fn oncelock_drops_its_value_once() {
    let value = Arc::new(());
    let mut cell = OnceLock::new();
    cell.set(value.clone()).expect("empty");
    assert_eq!(Arc::strong_count(&value), 2);
    drop(cell.take());
    assert_eq!((Arc::strong_count(&value), cell.get()), (1, None));
    cell.set(value.clone()).expect("empty again");
    drop(cell);
    assert_eq!(Arc::strong_count(&value), 1);
    assert_eq!(OnceLock::<u8>::new().into_inner(), None);
}

#[test]
fn poisoned_lazylock_names_itself_at_each_access() {
    let cell: LazyLock<u8> = LazyLock::new(|| panic!("refuses"));
    let message = || {
        let panic = catch_unwind(AssertUnwindSafe(|| *cell)).expect_err("it panics");
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("a text")
    };
    assert_eq!(message(), "refuses");
    for _ in 0..2 {
        assert_eq!(message(), "LazyLock instance has previously been poisoned");
    }
}
