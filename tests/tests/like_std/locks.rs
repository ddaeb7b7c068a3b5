//! Mutexes, reader-writer locks and barriers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kumihimo::sync::{Arc, Barrier, Mutex, RwLock, RwLockWriteGuard, TryLockError, mpsc};
use kumihimo::thread;

use crate::Beside;
use crate::beside::behaviours;

behaviours!(
    mutex_excludes,
    try_lock_of_a_held_mutex_would_block,
    mutex_is_free_after_its_guard,
    panic_poisons_a_mutex,
    poisoned_mutex_gives_its_value,
    try_lock_reports_poison,
    mutex_is_not_poisoned_by_an_earlier_panic,
    mutex_gives_its_value_back,
    poisoned_mutex_refuses_its_value,
    mutex_of_a_slice,
    mutex_formats_as_in_std,
    mutex_is_made_in_a_constant,
    nested_mutexes,
    readers_share,
    writer_excludes_readers,
    writer_waits_for_readers,
    readers_and_writers_see_whole_values,
    panicking_writer_poisons,
    panicking_reader_does_not_poison,
    rwlock_gives_its_value_back,
    writer_becomes_reader,
    downgrade_lets_other_readers_in,
    waiting_writer_follows_a_downgrade,
    rwlock_formats_as_in_std,
    rwlock_of_a_slice,
    barrier_has_one_leader,
    barrier_is_used_again,
    barrier_of_one_never_waits,
    barrier_of_none_never_waits,
    lock_in_a_destructor_during_a_panic,
);

fn panics(f: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "it panics");
}

fn mutex_excludes(beside: Beside) {
    let (count, inside) = (Arc::new(Mutex::new(0)), Arc::new(AtomicUsize::new(0)));
    let add = {
        let (count, inside) = (count.clone(), inside.clone());
        move || {
            for _ in 0..200 {
                let mut guard = count.lock().unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one holder");
                *guard += 1;
                thread::yield_now();
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
            }
        }
    };
    let others: Vec<_> = (0..3).map(|_| beside.spawn(add.clone())).collect();
    add();
    others.into_iter().for_each(|other| other.result());
    assert_eq!(*count.lock().unwrap(), 800);
}

fn try_lock_of_a_held_mutex_would_block(beside: Beside) {
    let lock = Arc::new(Mutex::new(()));
    let guard = lock.lock().unwrap();
    let other = lock.clone();
    let refused = beside.spawn(move || matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
    assert!(refused.result());
    drop(guard);
}

fn mutex_is_free_after_its_guard(beside: Beside) {
    let lock = Arc::new(Mutex::new(1));
    drop(lock.lock().unwrap());
    *lock.try_lock().expect("it is free") += 1;
    let other = lock.clone();
    beside.spawn(move || *other.try_lock().expect("it is free") += 1).result();
    assert_eq!(*lock.try_lock().expect("it is free"), 3);
}

fn panic_poisons_a_mutex(beside: Beside) {
    let lock = Arc::new(Mutex::new(1));
    let other = lock.clone();
    let ended = beside.spawn(move || {
        let _guard = other.lock().unwrap();
        std::panic::resume_unwind(Box::new("held"));
    });
    assert!(ended.join().is_err());
    assert!(lock.is_poisoned() && lock.lock().is_err());
    lock.clear_poison();
    assert!(!lock.is_poisoned() && lock.lock().is_ok());
}

fn poisoned_mutex_gives_its_value(_: Beside) {
    let lock = Mutex::new(String::from("a"));
    panics(|| {
        let mut guard = lock.lock().unwrap();
        guard.push('b');
        std::panic::resume_unwind(Box::new(()));
    });
    let poisoned = lock.lock().unwrap_err();
    assert_eq!(*poisoned.get_ref().as_str(), *"ab");
    assert_eq!(*poisoned.into_inner(), "ab");
}

fn try_lock_reports_poison(_: Beside) {
    let lock = Mutex::new(5);
    panics(|| {
        let _guard = lock.lock().unwrap();
        std::panic::resume_unwind(Box::new(()));
    });
    let Err(TryLockError::Poisoned(poisoned)) = lock.try_lock() else {
        panic!("a poisoned mutex is reported");
    };
    assert_eq!(**poisoned.get_ref(), 5);
    assert!(matches!(lock.try_lock(), Err(TryLockError::WouldBlock)), "the error has the guard");
}

fn mutex_is_not_poisoned_by_an_earlier_panic(_: Beside) {
    struct Locks<'a>(&'a Mutex<i32>);
    impl Drop for Locks<'_> {
        fn drop(&mut self) {
            // The panic began before the lock was taken.
            *self.0.lock().unwrap() += 1;
        }
    }
    let lock = Mutex::new(0);
    panics(|| {
        let _locks = Locks(&lock);
        std::panic::resume_unwind(Box::new(()));
    });
    assert_eq!(*lock.lock().expect("it is not poisoned"), 1);
}

fn lock_in_a_destructor_during_a_panic(beside: Beside) {
    struct Sends(mpsc::Sender<bool>);
    impl Drop for Sends {
        fn drop(&mut self) {
            let lock = Mutex::new(());
            drop(lock.lock());
            self.0.send(std::thread::panicking()).expect("the receiver waits");
        }
    }
    let (sender, receiver) = mpsc::channel();
    let ended = beside.spawn(move || {
        let _sends = Sends(sender);
        std::panic::resume_unwind(Box::new(7));
    });
    assert_eq!(receiver.recv(), Ok(true));
    assert_eq!(*ended.join().unwrap_err().downcast::<i32>().expect("an integer"), 7);
}

fn mutex_gives_its_value_back(beside: Beside) {
    let dropped = Arc::new(AtomicUsize::new(0));
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let mut lock = Mutex::new(Counts(dropped.clone()));
    lock.get_mut().unwrap().0 = dropped.clone();
    let value = beside.spawn(move || lock.into_inner().unwrap()).result();
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    drop(value);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

fn poisoned_mutex_refuses_its_value(_: Beside) {
    let mut lock = Mutex::new(3);
    panics(|| {
        let _guard = lock.lock().unwrap();
        std::panic::resume_unwind(Box::new(()));
    });
    *lock.get_mut().unwrap_err().into_inner() += 1;
    assert_eq!(lock.into_inner().unwrap_err().into_inner(), 4);
}

fn mutex_of_a_slice(_: Beside) {
    let lock: &Mutex<[i32]> = &Mutex::new([1, 2, 3]);
    lock.lock().unwrap()[1] = 5;
    assert_eq!(*lock.lock().unwrap(), [1, 5, 3]);
}

fn mutex_formats_as_in_std(_: Beside) {
    let (own, of_std) = (Mutex::new(4), std::sync::Mutex::new(4));
    assert_eq!(format!("{own:?}"), format!("{of_std:?}"));
    let (_guard, _of_std) = (own.lock().unwrap(), of_std.lock().unwrap());
    assert_eq!(format!("{own:?}"), format!("{of_std:?}"));
    assert_eq!(format!("{_guard:?} {_guard}"), "4 4");
    assert_eq!(format!("{:?}", Mutex::<u8>::default()), "Mutex { data: 0, poisoned: false, .. }");
}

fn mutex_is_made_in_a_constant(_: Beside) {
    static LOCK: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let before = LOCK.lock().unwrap().len();
    LOCK.lock().unwrap().push(before);
    assert!(LOCK.lock().unwrap().contains(&before));
}

fn nested_mutexes(beside: Beside) {
    let outer = Arc::new(Mutex::new(Arc::new(Mutex::new(1))));
    let other = outer.clone();
    beside.spawn(move || *other.lock().unwrap().lock().unwrap() += 1).result();
    assert_eq!(*outer.lock().unwrap().lock().unwrap(), 2);
}

fn readers_share(beside: Beside) {
    let lock = Arc::new(RwLock::new(3));
    let guard = lock.read().unwrap();
    let other = lock.clone();
    assert_eq!(beside.spawn(move || *other.read().unwrap()).result(), 3, "beside a reader");
    assert_eq!(*lock.try_read().expect("beside a reader") + *guard, 6);
    assert!(matches!(lock.try_write(), Err(TryLockError::WouldBlock)));
}

fn writer_excludes_readers(beside: Beside) {
    let lock = Arc::new(RwLock::new(3));
    let guard = lock.write().unwrap();
    let other = lock.clone();
    let both_refused = move || {
        matches!(other.try_read(), Err(TryLockError::WouldBlock))
            && matches!(other.try_write(), Err(TryLockError::WouldBlock))
    };
    assert!(beside.spawn(both_refused).result());
    drop(guard);
    assert!(lock.try_write().is_ok());
}

fn writer_waits_for_readers(beside: Beside) {
    let lock = Arc::new(RwLock::new(0));
    let guard = lock.read().unwrap();
    let (other, (sender, receiver)) = (lock.clone(), mpsc::channel());
    let writes = beside.spawn(move || {
        sender.send(()).unwrap();
        *other.write().unwrap() = 7;
    });
    receiver.recv().unwrap();
    thread::yield_now();
    assert_eq!(*guard, 0, "nothing is written beside a reader");
    drop(guard);
    writes.result();
    assert_eq!(*lock.read().unwrap(), 7);
}

fn readers_and_writers_see_whole_values(beside: Beside) {
    let lock = Arc::new(RwLock::new((0, 0)));
    let write = {
        let lock = lock.clone();
        move || {
            for _ in 0..100 {
                let mut pair = lock.write().unwrap();
                pair.0 += 1;
                thread::yield_now();
                pair.1 += 1;
            }
        }
    };
    let read = {
        let lock = lock.clone();
        move || {
            for _ in 0..100 {
                let pair = lock.read().unwrap();
                assert_eq!(pair.0, pair.1);
                thread::yield_now();
            }
        }
    };
    let writers: Vec<_> = (0..2).map(|_| beside.spawn(write.clone())).collect();
    let reader = beside.spawn(read.clone());
    read();
    writers.into_iter().for_each(|writer| writer.result());
    reader.result();
    assert_eq!(*lock.read().unwrap(), (200, 200));
}

fn panicking_writer_poisons(beside: Beside) {
    let lock = Arc::new(RwLock::new(1));
    let other = lock.clone();
    let ended = beside.spawn(move || {
        *other.write().unwrap() = 2;
        let _guard = other.write().unwrap();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(ended.join().is_err());
    assert!(lock.is_poisoned());
    assert_eq!(*lock.read().unwrap_err().into_inner(), 2);
    assert!(matches!(lock.try_write(), Err(TryLockError::Poisoned(_))));
    lock.clear_poison();
    assert!(lock.read().is_ok() && lock.write().is_ok());
}

fn panicking_reader_does_not_poison(beside: Beside) {
    let lock = Arc::new(RwLock::new(1));
    let other = lock.clone();
    let ended = beside.spawn(move || {
        let _guard = other.read().unwrap();
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(ended.join().is_err());
    assert!(!lock.is_poisoned() && lock.write().is_ok());
}

fn rwlock_gives_its_value_back(beside: Beside) {
    let mut lock = RwLock::new(vec![1]);
    lock.get_mut().unwrap().push(2);
    assert_eq!(beside.spawn(move || lock.into_inner().unwrap()).result(), [1, 2]);
}

fn writer_becomes_reader(beside: Beside) {
    let lock = Arc::new(RwLock::new(1));
    let mut guard = lock.write().unwrap();
    *guard = 2;
    let reader = RwLockWriteGuard::downgrade(guard);
    let other = lock.clone();
    let refused = beside.spawn(move || matches!(other.try_write(), Err(TryLockError::WouldBlock)));
    assert!(refused.result() && *reader == 2);
    drop(reader);
    assert!(lock.try_write().is_ok());
}

fn downgrade_lets_other_readers_in(beside: Beside) {
    let lock = Arc::new(RwLock::new(1));
    let mut guard = lock.write().unwrap();
    let other = lock.clone();
    let reads = beside.spawn(move || *other.read().unwrap());
    *guard = 9;
    let _reader = RwLockWriteGuard::downgrade(guard);
    assert_eq!(reads.result(), 9);
}

fn waiting_writer_follows_a_downgrade(beside: Beside) {
    let lock = Arc::new(RwLock::new(0));
    let guard = lock.write().unwrap();
    let other = lock.clone();
    let writes = beside.spawn(move || *other.write().unwrap() += 5);
    let reader = RwLockWriteGuard::downgrade(guard);
    assert_eq!(*reader, 0);
    drop(reader);
    writes.result();
    assert_eq!(*lock.read().unwrap(), 5);
}

fn rwlock_formats_as_in_std(_: Beside) {
    let (own, of_std) = (RwLock::new("x"), std::sync::RwLock::new("x"));
    assert_eq!(format!("{own:?}"), format!("{of_std:?}"));
    let (_guard, _of_std) = (own.write().unwrap(), of_std.write().unwrap());
    assert_eq!(format!("{own:?}"), format!("{of_std:?}"));
}

fn rwlock_of_a_slice(_: Beside) {
    let lock: &RwLock<[u8]> = &RwLock::new([1, 2]);
    lock.write().unwrap()[0] = 9;
    assert_eq!(*lock.read().unwrap(), [9, 2]);
}

fn barrier_has_one_leader(beside: Beside) {
    let barrier = Arc::new(Barrier::new(4));
    let others: Vec<_> = (0..3)
        .map(|_| {
            let barrier = barrier.clone();
            beside.spawn(move || barrier.wait().is_leader())
        })
        .collect();
    let own = barrier.wait().is_leader();
    let leaders = others.into_iter().map(|other| other.result());
    assert_eq!(leaders.filter(|&leads| leads).count() + usize::from(own), 1);
}

fn barrier_is_used_again(beside: Beside) {
    let (barrier, rounds) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
    let other = (barrier.clone(), rounds.clone());
    let waits = beside.spawn(move || {
        for _ in 0..20 {
            other.1.fetch_add(1, Ordering::SeqCst);
            other.0.wait();
            other.0.wait();
        }
    });
    for round in 1..=20 {
        barrier.wait();
        assert_eq!(rounds.load(Ordering::SeqCst), round);
        barrier.wait();
    }
    waits.result();
}

fn barrier_of_one_never_waits(_: Beside) {
    let barrier = Barrier::new(1);
    assert!(barrier.wait().is_leader() && barrier.wait().is_leader());
}

fn barrier_of_none_never_waits(_: Beside) {
    assert!(Barrier::new(0).wait_timeout(Duration::from_secs(3600)).expect("no wait").is_leader());
}
