//! `std::sync::RwLock` and its guards.

#[test]
fn readers_and_a_writer() {
    use kumihimo::sync::RwLock;

    let lock = RwLock::new(5);

    // many reader locks can be held at once
    {
        let r1 = lock.read().unwrap();
        let r2 = lock.read().unwrap();
        assert_eq!(*r1, 5);
        assert_eq!(*r2, 5);
    } // read locks are dropped at this point

    // only one write lock may be held, however
    {
        let mut w = lock.write().unwrap();
        *w += 1;
        assert_eq!(*w, 6);
    } // write lock is dropped here
}

#[test]
fn new() {
    use kumihimo::sync::RwLock;

    let lock = RwLock::new(5);
}

#[test]
fn read() {
    use kumihimo::sync::{Arc, RwLock};
    use kumihimo::thread;

    let lock = Arc::new(RwLock::new(1));
    let c_lock = Arc::clone(&lock);

    let n = lock.read().unwrap();
    assert_eq!(*n, 1);

    thread::spawn(move || {
        let r = c_lock.read();
        assert!(r.is_ok());
    })
    .join()
    .unwrap();
}

#[test]
fn try_read() {
    use kumihimo::sync::RwLock;

    let lock = RwLock::new(1);

    match lock.try_read() {
        Ok(n) => assert_eq!(*n, 1),
        Err(_) => unreachable!(),
    };
}

#[test]
fn write() {
    use kumihimo::sync::RwLock;

    let lock = RwLock::new(1);

    let mut n = lock.write().unwrap();
    *n = 2;

    assert!(lock.try_read().is_err());
}

#[test]
fn try_write() {
    use kumihimo::sync::RwLock;

    let lock = RwLock::new(1);

    let n = lock.read().unwrap();
    assert_eq!(*n, 1);

    assert!(lock.try_write().is_err());
}

#[test]
fn is_poisoned() {
    use kumihimo::sync::{Arc, RwLock};
    use kumihimo::thread;

    let lock = Arc::new(RwLock::new(0));
    let c_lock = Arc::clone(&lock);

    let _ = thread::spawn(move || {
        let _lock = c_lock.write().unwrap();
        panic!(); // the lock gets poisoned
    })
    .join();
    assert_eq!(lock.is_poisoned(), true);
}

#[test]
fn clear_poison() {
    use kumihimo::sync::{Arc, RwLock};
    use kumihimo::thread;

    let lock = Arc::new(RwLock::new(0));
    let c_lock = Arc::clone(&lock);

    let _ = thread::spawn(move || {
        let _lock = c_lock.write().unwrap();
        panic!(); // the lock gets poisoned
    })
    .join();

    assert_eq!(lock.is_poisoned(), true);
    let guard = lock.write().unwrap_or_else(|mut e| {
        **e.get_mut() = 1;
        lock.clear_poison();
        e.into_inner()
    });
    assert_eq!(lock.is_poisoned(), false);
    assert_eq!(*guard, 1);
}

#[test]
fn into_inner() {
    use kumihimo::sync::RwLock;

    let lock = RwLock::new(String::new());
    {
        let mut s = lock.write().unwrap();
        *s = "modified".to_owned();
    }
    assert_eq!(lock.into_inner().unwrap(), "modified");
}

#[test]
fn get_mut() {
    use kumihimo::sync::RwLock;

    let mut lock = RwLock::new(0);
    *lock.get_mut().unwrap() = 10;
    assert_eq!(*lock.read().unwrap(), 10);
}

#[test]
fn downgrade() {
    use kumihimo::sync::{Arc, RwLock, RwLockWriteGuard};

    // The inner value starts as 0.
    let rw = Arc::new(RwLock::new(0));

    // Put the lock in write mode.
    let mut main_write_guard = rw.write().unwrap();

    let evil = {
        let rw_handle = rw.clone();
        kumihimo::thread::spawn(move || {
            // This will not return until the main thread drops the `main_read_guard`.
            let mut evil_guard = rw_handle.write().unwrap();

            assert_eq!(*evil_guard, 1);
            *evil_guard = 2;
        })
    };

    *main_write_guard = 1;

    // Atomically downgrade the write guard into a read guard.
    let main_read_guard = RwLockWriteGuard::downgrade(main_write_guard);

    // Since `downgrade` is atomic, the writer thread cannot have changed the protected data.
    assert_eq!(*main_read_guard, 1, "`downgrade` was not atomic");
    drop(main_read_guard);
    evil.join().unwrap();

    let final_check = rw.read().unwrap();
    assert_eq!(*final_check, 2);
}
