//! `std::sync::Condvar`, `WaitTimeoutResult`.

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
    let result = cvar
        .wait_timeout_while(lock.lock().unwrap(), Duration::from_millis(100), |&mut pending| {
            pending
        })
        .unwrap();
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
