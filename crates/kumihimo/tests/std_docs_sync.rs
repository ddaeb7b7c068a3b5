//! std's documentation examples for `std::sync`, compiled and run with only the `use` changed: `std::thread` and `std::sync` have
//! become `kumihimo::thread` and `kumihimo::sync`. Examples that std shows failing to compile, or of unstable functions, are not here.
#![allow(unused)]
#![allow(clippy::all)]

/// `std::sync::Mutex`, `MutexGuard`, `PoisonError`, `TryLockError`.
mod mutex {
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

        threads.into_iter().for_each(|thread| thread.join().expect("The thread creating or execution failed !"));

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
}

/// `std::sync::RwLock` and its guards.
mod rwlock {
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
}

/// `std::sync::Condvar`, `WaitTimeoutResult`.
mod condvar {
    #[test]
    fn wait_for_a_start() {
        use kumihimo::sync::{Arc, Condvar, Mutex};
        use kumihimo::thread;

        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let pair2 = Arc::clone(&pair);

        // Inside of our lock, spawn a new thread, and then wait for it to start.
        thread::spawn(move || {
            let (lock, cvar) = &*pair2;
            let mut started = lock.lock().unwrap();
            *started = true;
            // We notify the condvar that the value has changed.
            cvar.notify_one();
        });

        // Wait for the thread to start up.
        let (lock, cvar) = &*pair;
        let mut started = lock.lock().unwrap();
        while !*started {
            started = cvar.wait(started).unwrap();
        }
    }

    #[test]
    fn new() {
        use kumihimo::sync::Condvar;

        let condvar = Condvar::new();
    }

    #[test]
    fn wait_while() {
        use kumihimo::sync::{Arc, Condvar, Mutex};
        use kumihimo::thread;

        let pair = Arc::new((Mutex::new(true), Condvar::new()));
        let pair2 = Arc::clone(&pair);

        thread::spawn(move || {
            let (lock, cvar) = &*pair2;
            let mut pending = lock.lock().unwrap();
            *pending = false;
            // We notify the condvar that the value has changed.
            cvar.notify_one();
        });

        // Wait for the thread to start up.
        let (lock, cvar) = &*pair;
        // As long as the value inside the `Mutex<bool>` is `true`, we wait.
        let _guard = cvar.wait_while(lock.lock().unwrap(), |pending| *pending).unwrap();
    }

    #[test]
    fn wait_timeout() {
        use kumihimo::sync::{Arc, Condvar, Mutex};
        use kumihimo::thread;
        use std::time::Duration;

        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let pair2 = Arc::clone(&pair);

        thread::spawn(move || {
            let (lock, cvar) = &*pair2;
            let mut started = lock.lock().unwrap();
            *started = true;
            // We notify the condvar that the value has changed.
            cvar.notify_one();
        });

        // wait for the thread to start up
        let (lock, cvar) = &*pair;
        let mut started = lock.lock().unwrap();
        // as long as the value inside the `Mutex<bool>` is `false`, we wait
        loop {
            let result = cvar.wait_timeout(started, Duration::from_millis(10)).unwrap();
            // 10 milliseconds have passed, or maybe the value changed!
            started = result.0;
            if *started == true {
                // We received the notification and the value has been updated, we can leave.
                break;
            }
        }
    }

    #[test]
    fn wait_timeout_while() {
        use kumihimo::sync::{Arc, Condvar, Mutex};
        use kumihimo::thread;
        use std::time::Duration;

        let pair = Arc::new((Mutex::new(true), Condvar::new()));
        let pair2 = Arc::clone(&pair);

        thread::spawn(move || {
            let (lock, cvar) = &*pair2;
            let mut pending = lock.lock().unwrap();
            *pending = false;
            // We notify the condvar that the value has changed.
            cvar.notify_one();
        });

        // wait for the thread to start up
        let (lock, cvar) = &*pair;
        let result =
            cvar.wait_timeout_while(lock.lock().unwrap(), Duration::from_millis(100), |&mut pending| pending).unwrap();
        if result.1.timed_out() {
            // timed-out without the condition ever evaluating to false.
        }
        // access the locked mutex via result.0
    }

    #[test]
    fn notify_all() {
        use kumihimo::sync::{Arc, Condvar, Mutex};
        use kumihimo::thread;

        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let pair2 = Arc::clone(&pair);

        thread::spawn(move || {
            let (lock, cvar) = &*pair2;
            let mut started = lock.lock().unwrap();
            *started = true;
            // We notify the condvar that the value has changed.
            cvar.notify_all();
        });

        // Wait for the thread to start up.
        let (lock, cvar) = &*pair;
        let mut started = lock.lock().unwrap();
        // As long as the value inside the `Mutex<bool>` is `false`, we wait.
        while !*started {
            started = cvar.wait(started).unwrap();
        }
    }

    #[test]
    fn timed_out() {
        use kumihimo::sync::{Arc, Condvar, Mutex};
        use kumihimo::thread;
        use std::time::Duration;

        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let pair2 = Arc::clone(&pair);

        let handle = thread::spawn(move || {
            let (lock, cvar) = &*pair2;

            // Let's wait 20 milliseconds before notifying the condvar.
            thread::sleep(Duration::from_millis(20));

            let mut started = lock.lock().unwrap();
            // We update the boolean value.
            *started = true;
            cvar.notify_one();
        });

        // Wait for the thread to start up.
        let (lock, cvar) = &*pair;
        loop {
            // Let's put a timeout on the condvar's wait.
            let result = cvar.wait_timeout(lock.lock().unwrap(), Duration::from_millis(10)).unwrap();
            // 10 milliseconds have passed.
            if result.1.timed_out() {
                // timed out now and we can leave.
                break;
            }
        }
        handle.join().unwrap();
    }
}

/// `std::sync::Barrier`, `BarrierWaitResult`.
mod barrier {
    #[test]
    fn all_meet() {
        use kumihimo::sync::Barrier;
        use kumihimo::thread;

        let n = 10;
        let barrier = Barrier::new(n);
        thread::scope(|s| {
            for _ in 0..n {
                // The same messages will be printed together.
                // You will NOT see any interleaving.
                s.spawn(|| {
                    println!("before wait");
                    barrier.wait();
                    println!("after wait");
                });
            }
        });
    }

    #[test]
    fn is_leader() {
        use kumihimo::sync::Barrier;

        let barrier = Barrier::new(1);
        let barrier_wait_result = barrier.wait();
        println!("{:?}", barrier_wait_result.is_leader());
    }
}

/// `std::sync::Once`, `OnceState`.
mod once {
    #[test]
    fn start() {
        use kumihimo::sync::Once;

        static START: Once = Once::new();

        START.call_once(|| {
            // run initialization here
        });
    }

    #[test]
    fn call_once() {
        use kumihimo::sync::Once;

        static mut VAL: usize = 0;
        static INIT: Once = Once::new();

        // Accessing a `static mut` is unsafe much of the time, but if we do so
        // in a synchronized fashion (e.g., write once or read all) then we're
        // good to go!
        //
        // This function will only call `expensive_computation` once, and will
        // otherwise always return the value returned from the first invocation.
        fn get_cached_val() -> usize {
            // SAFETY: as the comment above says: written once, before it is read.
            unsafe {
                INIT.call_once(|| {
                    VAL = expensive_computation();
                });
                VAL
            }
        }

        fn expensive_computation() -> usize {
            2
        }
        assert_eq!(get_cached_val(), 2);
    }

    #[test]
    fn call_once_force() {
        use kumihimo::sync::Once;
        use kumihimo::thread;

        static INIT: Once = Once::new();

        // poison the once
        let handle = thread::spawn(|| {
            INIT.call_once(|| panic!());
        });
        assert!(handle.join().is_err());

        // poisoning propagates
        let handle = thread::spawn(|| {
            INIT.call_once(|| {});
        });
        assert!(handle.join().is_err());

        // call_once_force will still run and reset the poisoned state
        INIT.call_once_force(|state| {
            assert!(state.is_poisoned());
        });

        // once any success happens, we stop propagating the poison
        INIT.call_once(|| {});
    }

    #[test]
    fn is_completed() {
        use kumihimo::sync::Once;

        static INIT: Once = Once::new();

        assert_eq!(INIT.is_completed(), false);
        INIT.call_once(|| {
            assert_eq!(INIT.is_completed(), false);
        });
        assert_eq!(INIT.is_completed(), true);
    }

    #[test]
    fn is_completed_after_panic() {
        use kumihimo::sync::Once;
        use kumihimo::thread;

        static INIT: Once = Once::new();

        assert_eq!(INIT.is_completed(), false);
        let handle = thread::spawn(|| {
            INIT.call_once(|| panic!());
        });
        assert!(handle.join().is_err());
        assert_eq!(INIT.is_completed(), false);
    }

    #[test]
    fn wait() {
        use kumihimo::sync::Once;
        use kumihimo::thread;

        static READY: Once = Once::new();

        let thread = thread::spawn(|| {
            READY.wait();
            println!("everything is ready");
        });

        READY.call_once(|| println!("performing setup"));
        thread.join().unwrap();
    }

    #[test]
    fn is_poisoned() {
        use kumihimo::sync::Once;
        use kumihimo::thread;

        static INIT: Once = Once::new();

        // poison the once
        let handle = thread::spawn(|| {
            INIT.call_once(|| panic!());
        });
        assert!(handle.join().is_err());

        INIT.call_once_force(|state| {
            assert!(state.is_poisoned());
        });
    }
}

/// `std::sync::OnceLock`.
mod oncelock {
    #[test]
    fn written_from_another_thread() {
        use kumihimo::sync::OnceLock;

        static CELL: OnceLock<usize> = OnceLock::new();

        // `OnceLock` has not been written to yet.
        assert!(CELL.get().is_none());

        // Spawn a thread and write to `OnceLock`.
        kumihimo::thread::spawn(|| {
            let value = CELL.get_or_init(|| 12345);
            assert_eq!(value, &12345);
        })
        .join()
        .unwrap();

        // `OnceLock` now contains the value.
        assert_eq!(CELL.get(), Some(&12345));
    }

    #[test]
    fn in_a_static() {
        use kumihimo::sync::OnceLock;

        struct DeepThought {
            answer: String,
        }

        impl DeepThought {
            fn great_question() -> String {
                "42".to_string()
            }
            fn new() -> Self {
                Self { answer: Self::great_question() }
            }
        }

        fn computation() -> &'static DeepThought {
            // n.b. static items do not call [`Drop`] on program termination, so if
            // [`DeepThought`] impls Drop, that will not be used for this instance.
            static COMPUTATION: OnceLock<DeepThought> = OnceLock::new();
            COMPUTATION.get_or_init(|| DeepThought::new())
        }

        let _ = computation().answer;
        // The `OnceLock` now contains the value.
        let _ = computation().answer;
    }

    #[test]
    fn set_and_get() {
        use kumihimo::sync::OnceLock;

        static CELL: OnceLock<i32> = OnceLock::new();

        fn main() {
            assert!(CELL.get().is_none());

            kumihimo::thread::spawn(|| {
                assert_eq!(CELL.set(92), Ok(()));
            })
            .join()
            .unwrap();

            assert_eq!(CELL.set(62), Err(62));
            assert_eq!(CELL.get(), Some(&92));
        }
        main();
    }

    #[test]
    fn wait() {
        use kumihimo::sync::OnceLock;
        use kumihimo::thread;

        let value = OnceLock::new();

        thread::scope(|s| {
            s.spawn(|| value.set(1 + 1));

            let result = value.wait();
            assert_eq!(result, &2);
        })
    }

    #[test]
    fn get_or_init() {
        use kumihimo::sync::OnceLock;

        let cell = OnceLock::new();
        let value = cell.get_or_init(|| 92);
        assert_eq!(value, &92);
        let value = cell.get_or_init(|| unreachable!());
        assert_eq!(value, &92);
    }

    #[test]
    fn into_inner_and_take() {
        use kumihimo::sync::OnceLock;

        let cell: OnceLock<String> = OnceLock::new();
        assert_eq!(cell.into_inner(), None);

        let cell = OnceLock::new();
        cell.set("hello".to_string()).unwrap();
        assert_eq!(cell.into_inner(), Some("hello".to_string()));

        let mut cell: OnceLock<String> = OnceLock::new();
        assert_eq!(cell.take(), None);

        let mut cell = OnceLock::new();
        cell.set("hello".to_string()).unwrap();
        assert_eq!(cell.take(), Some("hello".to_string()));
        assert_eq!(cell.get(), None);
    }

    #[test]
    fn from() {
        use kumihimo::sync::OnceLock;

        let a = OnceLock::from(3);
        let b = OnceLock::new();
        b.set(3).unwrap();
        assert_eq!(a, b);

        let default: OnceLock<()> = OnceLock::default();
        assert_eq!(default, OnceLock::new());
    }
}

/// `std::sync::LazyLock`.
mod lazylock {
    #[test]
    fn in_a_static() {
        use kumihimo::sync::LazyLock;

        // Note: static items do not call [`Drop`] on program termination, so this won't deallocate.
        // this is fine, as the OS can deallocate the terminated program faster than we can free memory
        // but tools like valgrind might report "memory leaks" as it isn't obvious this is intentional.
        static DEEP_THOUGHT: LazyLock<String> = LazyLock::new(|| {
            mod another_crate {
                pub fn great_question() -> String {
                    "42".to_string()
                }
            }
            // Takes about 16 million years in --release config.
            another_crate::great_question()
        });

        // The `String` is built, stored in the `LazyLock`, and returned as `&String`.
        let _ = &*DEEP_THOUGHT;
        // The `String` is retrieved from the `LazyLock` and returned as `&String`.
        let _ = &*DEEP_THOUGHT;
    }

    #[test]
    fn in_a_field() {
        use kumihimo::sync::LazyLock;

        #[derive(Debug)]
        struct UseCellLock {
            number: LazyLock<u32>,
        }
        let lock: LazyLock<u32> = LazyLock::new(|| 0u32);

        let data = UseCellLock { number: lock };
        println!("{}", *data.number);
    }

    #[test]
    fn new_and_force() {
        use kumihimo::sync::LazyLock;

        let hello = "Hello, World!".to_string();
        let lazy = LazyLock::new(|| hello.to_uppercase());
        assert_eq!(&*lazy, "HELLO, WORLD!");

        let lazy = LazyLock::new(|| 92);
        assert_eq!(LazyLock::force(&lazy), &92);
        assert_eq!(&*lazy, &92);
    }
}

/// `std::sync::mpsc`.
mod mpsc {
    #[test]
    fn simple_usage() {
        use kumihimo::sync::mpsc::channel;
        use kumihimo::thread;

        // Create a simple streaming channel
        let (tx, rx) = channel();
        thread::spawn(move || {
            tx.send(10).unwrap();
        });
        assert_eq!(rx.recv().unwrap(), 10);
    }

    #[test]
    fn shared_usage() {
        use kumihimo::sync::mpsc::channel;
        use kumihimo::thread;

        // Create a shared channel that can be sent along from many threads
        // where tx is the sending half (tx for transmission), and rx is the receiving
        // half (rx for receiving).
        let (tx, rx) = channel();
        for i in 0..10 {
            let tx = tx.clone();
            thread::spawn(move || {
                tx.send(i).unwrap();
            });
        }

        for _ in 0..10 {
            let j = rx.recv().unwrap();
            assert!(0 <= j && j < 10);
        }
    }

    #[test]
    fn propagating_panics() {
        use kumihimo::sync::mpsc::channel;

        // The call to recv() will return an error because the channel has already
        // hung up (or been deallocated)
        let (tx, rx) = channel::<i32>();
        drop(tx);
        assert!(rx.recv().is_err());
    }

    #[test]
    fn synchronous_channels() {
        use kumihimo::sync::mpsc::sync_channel;
        use kumihimo::thread;

        let (tx, rx) = sync_channel::<i32>(0);
        thread::spawn(move || {
            // This will wait for the parent thread to start receiving
            tx.send(53).unwrap();
        });
        rx.recv().unwrap();
    }

    #[test]
    fn unbounded_receive_loop() {
        use kumihimo::sync::mpsc::sync_channel;
        use kumihimo::thread;

        let (tx, rx) = sync_channel(3);

        for _ in 0..3 {
            // It would be the same without thread and clone here
            // since there will still be one `tx` left.
            let tx = tx.clone();
            // cloned tx dropped within thread
            thread::spawn(move || tx.send("ok").unwrap());
        }

        // Drop the last sender to stop `rx` waiting for message.
        // The program will not complete if we comment this out.
        // **All** `tx` needs to be dropped for `rx` to have `Err`.
        drop(tx);

        // Unbounded receiver waiting for all senders to complete.
        while let Ok(msg) = rx.recv() {
            println!("{msg}");
        }

        println!("completed");
    }

    #[test]
    fn channel() {
        use kumihimo::sync::mpsc::channel;
        use kumihimo::thread;

        let (sender, receiver) = channel();

        // Spawn off an expensive computation
        thread::spawn(move || {
            fn expensive_computation() {}
            sender.send(expensive_computation()).unwrap();
        });

        // Do some useful work for a while

        // Let's see what that answer was
        println!("{:?}", receiver.recv().unwrap());
    }

    #[test]
    fn sync_channel() {
        use kumihimo::sync::mpsc::sync_channel;
        use kumihimo::thread;

        let (sender, receiver) = sync_channel(1);

        // this returns immediately
        sender.send(1).unwrap();

        thread::spawn(move || {
            // this will block until the previous message has been received
            sender.send(2).unwrap();
        });

        assert_eq!(receiver.recv().unwrap(), 1);
        assert_eq!(receiver.recv().unwrap(), 2);
    }

    #[test]
    fn sender_send() {
        use kumihimo::sync::mpsc::channel;

        let (tx, rx) = channel();

        // This send is always successful
        tx.send(1).unwrap();

        // This send will fail because the receiver is gone
        drop(rx);
        assert_eq!(tx.send(1).unwrap_err().0, 1);
    }

    #[test]
    fn sync_sender_send() {
        use kumihimo::sync::mpsc::sync_channel;
        use kumihimo::thread;

        // Create a rendezvous sync_channel with buffer size 0
        let (sync_sender, receiver) = sync_channel(0);

        thread::spawn(move || {
            println!("sending message...");
            sync_sender.send(1).unwrap();
            // Thread is now blocked until the message is received

            println!("...message received!");
        });

        let msg = receiver.recv().unwrap();
        assert_eq!(1, msg);
    }

    #[test]
    fn sync_sender_clones() {
        use kumihimo::sync::mpsc::sync_channel;
        use kumihimo::thread;

        // Create a sync_channel with buffer size 2
        let (sync_sender, receiver) = sync_channel(2);
        let sync_sender2 = sync_sender.clone();

        // First thread owns sync_sender
        thread::spawn(move || {
            sync_sender.send(1).unwrap();
            sync_sender.send(2).unwrap();
        });

        // Second thread owns sync_sender2
        thread::spawn(move || {
            sync_sender2.send(3).unwrap();
            // thread will now block since the buffer is full
            println!("Thread unblocked!");
        });

        let mut msg;

        msg = receiver.recv().unwrap();
        println!("message {msg} received");

        // "Thread unblocked!" will be printed now

        msg = receiver.recv().unwrap();
        println!("message {msg} received");

        msg = receiver.recv().unwrap();

        println!("message {msg} received");
    }

    #[test]
    fn try_send() {
        use kumihimo::sync::mpsc::sync_channel;
        use kumihimo::thread;

        // Create a sync_channel with buffer size 1
        let (sync_sender, receiver) = sync_channel(1);
        let sync_sender2 = sync_sender.clone();

        // First thread owns sync_sender
        thread::spawn(move || {
            sync_sender.send(1).unwrap();
            sync_sender.send(2).unwrap();
            // Thread blocked
        });

        // Second thread owns sync_sender2
        thread::spawn(move || {
            // This will return an error and send
            // no message if the buffer is full
            let _ = sync_sender2.try_send(3);
        });

        let mut msg;
        msg = receiver.recv().unwrap();
        println!("message {msg} received");

        msg = receiver.recv().unwrap();
        println!("message {msg} received");

        // Third message may have never been sent
        match receiver.try_recv() {
            Ok(msg) => println!("message {msg} received"),
            Err(_) => println!("the third message was never sent"),
        }
    }

    #[test]
    fn try_recv() {
        use kumihimo::sync::mpsc::{Receiver, channel};

        let (_, receiver): (_, Receiver<i32>) = channel();

        assert!(receiver.try_recv().is_err());
    }

    #[test]
    fn recv() {
        use kumihimo::sync::mpsc;
        use kumihimo::thread;

        let (send, recv) = mpsc::channel();
        let handle = thread::spawn(move || {
            send.send(1u8).unwrap();
        });

        handle.join().unwrap();

        assert_eq!(Ok(1), recv.recv());
    }

    #[test]
    fn recv_buffering() {
        use kumihimo::sync::mpsc;
        use kumihimo::sync::mpsc::RecvError;
        use kumihimo::thread;

        let (send, recv) = mpsc::channel();
        let handle = thread::spawn(move || {
            send.send(1u8).unwrap();
            send.send(2).unwrap();
            send.send(3).unwrap();
            drop(send);
        });

        // wait for the thread to join so we ensure the sender is dropped
        handle.join().unwrap();

        assert_eq!(Ok(1), recv.recv());
        assert_eq!(Ok(2), recv.recv());
        assert_eq!(Ok(3), recv.recv());
        assert_eq!(Err(RecvError), recv.recv());
    }

    // Compiled only: it bets on the clock.
    fn recv_timeout() {
        use kumihimo::sync::mpsc;
        use kumihimo::thread;
        use std::time::Duration;

        let (send, recv) = mpsc::channel();

        thread::spawn(move || {
            send.send('a').unwrap();
        });

        assert_eq!(recv.recv_timeout(Duration::from_millis(400)), Ok('a'));
    }

    // Compiled only: it bets on the clock.
    fn recv_timeout_reached() {
        use kumihimo::sync::mpsc;
        use kumihimo::thread;
        use std::time::Duration;

        let (send, recv) = mpsc::channel();

        thread::spawn(move || {
            thread::sleep(Duration::from_millis(800));
            let _ = send.send('a');
        });

        assert_eq!(recv.recv_timeout(Duration::from_millis(400)), Err(mpsc::RecvTimeoutError::Timeout));
    }

    #[test]
    fn iter() {
        use kumihimo::sync::mpsc::channel;
        use kumihimo::thread;

        let (send, recv) = channel();

        thread::spawn(move || {
            send.send(1).unwrap();
            send.send(2).unwrap();
            send.send(3).unwrap();
        });

        let mut iter = recv.iter();
        assert_eq!(iter.next(), Some(1));
        assert_eq!(iter.next(), Some(2));
        assert_eq!(iter.next(), Some(3));
        assert_eq!(iter.next(), None);
    }

    #[test]
    fn try_iter() {
        use kumihimo::sync::mpsc::channel;
        use kumihimo::thread;
        use std::time::Duration;

        let (sender, receiver) = channel();

        // nothing is in the buffer yet
        assert!(receiver.try_iter().next().is_none());

        thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            sender.send(1).unwrap();
            sender.send(2).unwrap();
            sender.send(3).unwrap();
        })
        .join()
        .unwrap();

        let mut iter = receiver.try_iter();
        assert_eq!(iter.next(), Some(1));
        assert_eq!(iter.next(), Some(2));
        assert_eq!(iter.next(), Some(3));
        assert_eq!(iter.next(), None);
    }

    #[test]
    fn receiver_in_a_loop() {
        use kumihimo::sync::mpsc::channel;
        use kumihimo::thread;
        use std::time::Duration;

        let (send, recv) = channel();

        thread::spawn(move || {
            send.send("Hello world!").unwrap();
            thread::sleep(Duration::from_millis(20)); // block for a moment
            send.send("Delayed for 20 milliseconds").unwrap();
        });

        println!("{}", recv.recv().unwrap()); // Received immediately
        println!("Waiting...");
        println!("{}", recv.recv().unwrap()); // Received after a moment

        let (send, recv) = channel();
        thread::spawn(move || {
            send.send(1u8).unwrap();
            send.send(2u8).unwrap();
            send.send(3u8).unwrap();
        });

        for x in recv {
            println!("Got: {x}");
        }
    }
}
