//! `std::sync::Mutex`, `MutexGuard`, `PoisonError`, `TryLockError`.

#[test]
fn shared_counter() {
    use kumihimo::sync::mpsc::channel;
    use kumihimo::sync::{Arc, Mutex};
    use kumihimo::thread;

    const N: usize = 10;

    // Spawn a few threads to increment a shared variable (non-atomically), and
    // let the main thread know once all increments are done.
    //
    // Here we're using an Arc to share memory among threads, and the data inside
    // the Arc is protected with a mutex.
    let data = Arc::new(Mutex::new(0));

    let (tx, rx) = channel();
    for _ in 0..N {
        let (data, tx) = (Arc::clone(&data), tx.clone());
        thread::spawn(move || {
            // The shared state can only be accessed once the lock is held.
            // Our non-atomic increment is safe because we're the only thread
            // which can access the shared state when the lock is held.
            //
            // We unwrap() the return value to assert that we are not expecting
            // threads to ever fail while holding the lock.
            let mut data = data.lock().unwrap();
            *data += 1;
            if *data == N {
                tx.send(()).unwrap();
            }
            // the lock is unlocked here when `data` goes out of scope.
        });
    }

    rx.recv().unwrap();
}

#[test]
fn recover_from_poison() {
    use kumihimo::sync::{Arc, Mutex};
    use kumihimo::thread;

    let lock = Arc::new(Mutex::new(0_u32));
    let lock2 = Arc::clone(&lock);

    let _ = thread::spawn(move || -> () {
        // This thread will acquire the mutex first, unwrapping the result of
        // `lock` because the lock has not been poisoned.
        let _guard = lock2.lock().unwrap();

        // This panic while holding the lock (`_guard` is in scope) will poison
        // the mutex.
        panic!();
    })
    .join();

    // The lock is poisoned by this point, but the returned result can be
    // pattern matched on to return the underlying guard on both branches.
    let mut guard = match lock.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    };

    *guard += 1;
}

#[test]
fn unlock_before_the_end_of_scope() {
    use kumihimo::sync::{Arc, Mutex};
    use kumihimo::thread;

    const N: usize = 3;

    let data_mutex = Arc::new(Mutex::new(vec![1, 2, 3, 4]));
    let res_mutex = Arc::new(Mutex::new(0));

    let mut threads = Vec::with_capacity(N);
    (0..N).for_each(|_| {
        let data_mutex_clone = Arc::clone(&data_mutex);
        let res_mutex_clone = Arc::clone(&res_mutex);

        threads.push(thread::spawn(move || {
            // Here we use a block to limit the lifetime of the lock guard.
            let result = {
                let mut data = data_mutex_clone.lock().unwrap();
                // This is the result of some important and long-ish work.
                let result = data.iter().fold(0, |acc, x| acc + x * 2);
                data.push(result);
                result
                // The mutex guard gets dropped here, together with any other values
                // created in the critical section.
            };
            // The guard created here is a temporary dropped at the end of the statement, i.e.
            // the lock would not remain being held even if the thread did some additional work.
            *res_mutex_clone.lock().unwrap() += result;
        }));
    });

    let mut data = data_mutex.lock().unwrap();
    // This is the result of some important and long-ish work.
    let result = data.iter().fold(0, |acc, x| acc + x * 2);
    data.push(result);
    // We drop the `data` explicitly because it's not necessary anymore and the
    // thread still has work to do. This allows other threads to start working on
    // the data immediately, without waiting for the rest of the unrelated work
    // to be done here.
    //
    // It's even more important here than in the threads because we `.join` the
    // threads after that. If we had not dropped the mutex guard, a thread could
    // be waiting forever for it, causing a deadlock.
    // As in the threads, a block could have been used instead of calling the
    // `drop` function.
    drop(data);
    // Here the mutex guard is not assigned to a variable and so, even if the
    // scope does not end after this line, the mutex is still released: there is
    // no deadlock.
    *res_mutex.lock().unwrap() += result;

    threads
        .into_iter()
        .for_each(|thread| thread.join().expect("The thread creating or execution failed !"));

    assert_eq!(*res_mutex.lock().unwrap(), 800);
}

#[test]
fn new() {
    use kumihimo::sync::Mutex;

    let mutex = Mutex::new(0);
}

#[test]
fn lock() {
    use kumihimo::sync::{Arc, Mutex};
    use kumihimo::thread;

    let mutex = Arc::new(Mutex::new(0));
    let c_mutex = Arc::clone(&mutex);

    thread::spawn(move || {
        *c_mutex.lock().unwrap() = 10;
    })
    .join()
    .expect("thread::spawn failed");
    assert_eq!(*mutex.lock().unwrap(), 10);
}

#[test]
fn try_lock() {
    use kumihimo::sync::{Arc, Mutex};
    use kumihimo::thread;

    let mutex = Arc::new(Mutex::new(0));
    let c_mutex = Arc::clone(&mutex);

    thread::spawn(move || {
        let mut lock = c_mutex.try_lock();
        if let Ok(ref mut mutex) = lock {
            **mutex = 10;
        } else {
            println!("try_lock failed");
        }
    })
    .join()
    .expect("thread::spawn failed");
    assert_eq!(*mutex.lock().unwrap(), 10);
}

#[test]
fn is_poisoned() {
    use kumihimo::sync::{Arc, Mutex};
    use kumihimo::thread;

    let mutex = Arc::new(Mutex::new(0));
    let c_mutex = Arc::clone(&mutex);

    let _ = thread::spawn(move || {
        let _lock = c_mutex.lock().unwrap();
        panic!(); // the mutex gets poisoned
    })
    .join();
    assert_eq!(mutex.is_poisoned(), true);
}

#[test]
fn clear_poison() {
    use kumihimo::sync::{Arc, Mutex};
    use kumihimo::thread;

    let mutex = Arc::new(Mutex::new(0));
    let c_mutex = Arc::clone(&mutex);

    let _ = thread::spawn(move || {
        let _lock = c_mutex.lock().unwrap();
        panic!(); // the mutex gets poisoned
    })
    .join();

    assert_eq!(mutex.is_poisoned(), true);
    let x = mutex.lock().unwrap_or_else(|mut e| {
        **e.get_mut() = 1;
        mutex.clear_poison();
        e.into_inner()
    });
    assert_eq!(mutex.is_poisoned(), false);
    assert_eq!(*x, 1);
}

#[test]
fn into_inner() {
    use kumihimo::sync::Mutex;

    let mutex = Mutex::new(0);
    assert_eq!(mutex.into_inner().unwrap(), 0);
}

#[test]
fn get_mut() {
    use kumihimo::sync::Mutex;

    let mut mutex = Mutex::new(0);
    *mutex.get_mut().unwrap() = 10;
    assert_eq!(*mutex.lock().unwrap(), 10);
}

#[test]
fn poison_error() {
    use kumihimo::sync::{Arc, Mutex};
    use kumihimo::thread;

    let mutex = Arc::new(Mutex::new(1));

    // poison the mutex
    let c_mutex = Arc::clone(&mutex);
    let _ = thread::spawn(move || {
        let mut data = c_mutex.lock().unwrap();
        *data = 2;
        panic!();
    })
    .join();

    match mutex.lock() {
        Ok(_) => unreachable!(),
        Err(p_err) => {
            let data = p_err.get_ref();
            println!("recovered: {data}");
        }
    };
}

#[test]
fn poison_error_into_inner() {
    use kumihimo::sync::{Arc, Mutex};
    use kumihimo::thread;
    use std::collections::HashSet;

    let mutex = Arc::new(Mutex::new(HashSet::new()));

    // poison the mutex
    let c_mutex = Arc::clone(&mutex);
    let _ = thread::spawn(move || {
        let mut data = c_mutex.lock().unwrap();
        data.insert(10);
        panic!();
    })
    .join();

    let p_err = mutex.lock().unwrap_err();
    let data = p_err.into_inner();
    println!("recovered {} items", data.len());
}
