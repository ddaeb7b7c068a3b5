//! Mutex, Condvar and Semaphore on kernel threads: seeded stress tests, and tests of single
//! guarantees.
#![cfg(not(loom))]

mod seed;

use kumihimo_sync::{Condvar, Mutex, Semaphore, TryLockError};
use seed::{Rng, crew, seed};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn mutex_excludes_under_mixed_use() {
    let seed = seed("mutex_excludes_under_mixed_use");
    let mutex = Mutex::new((0u64, 0u64));
    let done: u64 = crew(|s| {
        let threads: Vec<_> = (0..8)
            .map(|t| {
                let mutex = &mutex;
                s.scope.spawn(move || {
                    let (mut rng, mut done) = (Rng::new(seed, t), 0);
                    for _ in 0..20_000 {
                        let guard = match rng.below(8) {
                            0 => mutex.try_lock().ok(),
                            1 => mutex.lock_timeout(Duration::from_micros(rng.below(50))).ok(),
                            2 => mutex.lock_until(Instant::now()).ok(),
                            _ => Some(mutex.lock().unwrap()),
                        };
                        if let Some(mut guard) = guard {
                            assert_eq!(guard.0, guard.1);
                            guard.0 += 1;
                            if rng.below(64) == 0 {
                                thread::yield_now();
                            }
                            guard.1 += 1;
                            done += 1;
                        }
                    }
                    done
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(*mutex.lock().unwrap(), (done, done));
}

#[test]
fn mutex_try_and_timed_lock_fail_while_held() {
    let mutex = Mutex::new(1);
    let guard = mutex.lock().unwrap();
    crew(|s| {
        s.spawn(|| {
            assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
            let before = Instant::now();
            assert!(matches!(
                mutex.lock_timeout(Duration::from_millis(5)),
                Err(TryLockError::WouldBlock)
            ));
            assert!(before.elapsed() >= Duration::from_millis(5));
            assert!(matches!(mutex.lock_until(before), Err(TryLockError::WouldBlock)));
        });
    });
    drop(guard);
    assert_eq!(*mutex.lock_timeout(Duration::MAX).unwrap(), 1);
}

#[test]
fn panic_poisons_mutex() {
    let mutex = Arc::new(Mutex::new(1));
    let other = mutex.clone();
    let result = thread::spawn(move || {
        let _guard = other.lock().unwrap();
        panic!("on purpose");
    })
    .join();
    assert!(result.is_err());
    assert!(mutex.is_poisoned());
    assert_eq!(*mutex.lock().unwrap_err().into_inner(), 1);
    assert!(matches!(mutex.try_lock(), Err(TryLockError::Poisoned(_))));
    assert!(format!("{mutex:?}").contains("poisoned: true"));
    mutex.clear_poison();
    assert!(!mutex.is_poisoned());
    assert_eq!(Arc::into_inner(mutex).unwrap().into_inner().unwrap(), 1);
}

#[test]
fn mutex_recursive_lock_panics() {
    let mutex = Mutex::new(());
    let _guard = mutex.lock().unwrap();
    let result = std::panic::catch_unwind(|| drop(mutex.lock()));
    let message = *result.unwrap_err().downcast::<&str>().unwrap();
    assert!(message.contains("already locked by the caller"), "{message}");
    assert!(mutex.try_lock().is_err());
}

#[test]
fn mutex_debug_shows_state() {
    let mutex = Mutex::from(5);
    assert_eq!(format!("{mutex:?}"), "Mutex { data: 5, poisoned: false, .. }");
    let guard = mutex.lock().unwrap();
    assert_eq!(format!("{mutex:?}"), "Mutex { data: \"<locked>\", poisoned: false, .. }");
    assert_eq!(format!("{guard:?} {guard}"), "5 5");
}

#[test]
fn condvar_passes_turns_in_order() {
    const TURNS: usize = 2_000;
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    crew(|s| {
        for me in 0..4 {
            let (turn, changed) = (&turn, &changed);
            s.spawn(move || {
                for _ in 0..TURNS {
                    let mut turn =
                        changed.wait_while(turn.lock().unwrap(), |turn| *turn % 4 != me).unwrap();
                    *turn += 1;
                    changed.notify_all();
                }
            });
        }
    });
    assert_eq!(*turn.lock().unwrap(), 4 * TURNS);
}

#[test]
fn condvar_notify_one_loses_nothing() {
    let seed = seed("condvar_notify_one_loses_nothing");
    let (items, changed) = (Mutex::new(0u64), Condvar::new());
    crew(|s| {
        for t in 0..4 {
            let (items, changed) = (&items, &changed);
            s.spawn(move || {
                let mut rng = Rng::new(seed, t);
                let mut left = 3_000;
                while left > 0 {
                    let mut guard = items.lock().unwrap();
                    while *guard == 0 {
                        guard = if rng.below(4) == 0 {
                            changed
                                .wait_timeout(guard, Duration::from_micros(rng.below(30)))
                                .unwrap()
                                .0
                        } else {
                            changed.wait(guard).unwrap()
                        };
                    }
                    *guard -= 1;
                    left -= 1;
                }
            });
        }
        for _ in 0..12_000 {
            *items.lock().unwrap() += 1;
            changed.notify_one();
        }
    });
    assert_eq!(*items.lock().unwrap(), 0);
}

#[test]
fn condvar_waits_time_out() {
    let (mutex, condvar) = (Mutex::new(false), Condvar::new());
    let (guard, result) =
        condvar.wait_timeout(mutex.lock().unwrap(), Duration::from_millis(1)).unwrap();
    assert!(result.timed_out());
    let (guard, result) =
        condvar.wait_timeout_while(guard, Duration::from_millis(1), |done| !*done).unwrap();
    assert!(result.timed_out() && !*guard);
    let (guard, result) = condvar.wait_until(guard, Instant::now()).unwrap();
    assert!(result.timed_out());
    let (guard, result) = condvar.wait_while_until(guard, Instant::now(), |_| false).unwrap();
    assert!(!result.timed_out() && !*guard);
}

#[test]
fn semaphore_bounds_its_holders() {
    let seed = seed("semaphore_bounds_its_holders");
    let (semaphore, holders) = (Semaphore::new(3), AtomicUsize::new(0));
    crew(|s| {
        for t in 0..8 {
            let (semaphore, holders) = (&semaphore, &holders);
            s.spawn(move || {
                let mut rng = Rng::new(seed, t);
                for _ in 0..5_000 {
                    let count = 1 + rng.below(3) as usize;
                    let permit = match rng.below(4) {
                        0 => semaphore.try_acquire_many(count),
                        1 => semaphore
                            .acquire_many_timeout(count, Duration::from_micros(rng.below(50))),
                        _ => Some(semaphore.acquire_many(count)),
                    };
                    if let Some(permit) = permit {
                        assert_eq!(permit.count(), count);
                        assert!(holders.fetch_add(count, Ordering::SeqCst) + count <= 3);
                        if rng.below(16) == 0 {
                            thread::yield_now();
                        }
                        holders.fetch_sub(count, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert_eq!(semaphore.available_permits(), 3);
}

#[test]
fn semaphore_refuses_too_many_permits() {
    let semaphore = Semaphore::new(0);
    assert!(semaphore.try_acquire().is_none());
    assert!(semaphore.acquire_timeout(Duration::from_millis(1)).is_none());
    assert!(semaphore.acquire_until(Instant::now()).is_none());
    semaphore.add_permits(2);
    semaphore.acquire().forget();
    assert_eq!(semaphore.available_permits(), 1);
    assert!(std::panic::catch_unwind(|| semaphore.add_permits(usize::MAX / 2)).is_err());
    assert!(std::panic::catch_unwind(|| Semaphore::new(usize::MAX)).is_err());
    assert_eq!(semaphore.available_permits(), 1);
}

#[test]
fn semaphore_does_not_overtake_large_request() {
    let semaphore = Semaphore::new(0);
    let served = Mutex::new(Vec::new());
    crew(|s| {
        s.spawn(|| {
            let _permit = semaphore.acquire_many(3);
            served.lock().unwrap().push(3);
            // No request was served ahead of this one while it waited.
            assert!(semaphore.try_acquire().is_none());
        });
        while semaphore.try_acquire_many(0).is_some() {
            thread::yield_now();
        }
        for _ in 0..3 {
            assert!(semaphore.try_acquire().is_none());
            semaphore.add_permits(1);
        }
    });
    assert_eq!(*served.lock().unwrap(), [3]);
    assert_eq!(semaphore.available_permits(), 3);
}
