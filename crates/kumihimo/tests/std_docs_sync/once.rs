//! `std::sync::Once`, `OnceState`.

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
