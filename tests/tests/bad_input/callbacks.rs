//! Cancellation below frames that cannot unwind: functions that C calls back.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use kumihimo::runtime::Runtime;
use kumihimo::thread::{self, Cancelled};
use kumihimo_tests::process::alone;

use super::with_vps;

const FOREVER: Duration = Duration::from_secs(3600);

type Compare = unsafe extern "C" fn(*const libc::c_void, *const libc::c_void) -> libc::c_int;

/// Calls `compare` at least once, through frames of C.
fn sort(compare: Compare) {
    let mut two = [2, 1];
    // SAFETY: two live elements of that size.
    unsafe { libc::qsort(two.as_mut_ptr().cast(), 2, size_of::<i32>(), Some(compare)) };
}

#[test]
fn runtime_ends_although_a_callback_waits() {
    unsafe extern "C" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
        thread::sleep(FOREVER);
        0
    }
    alone("callbacks::runtime_ends_although_a_callback_waits", || {
        let runtime = Runtime::builder().vps(2).build().expect("a runtime");
        runtime.run(|| {
            thread::spawn(|| sort(compare));
            thread::spawn(|| sort(compare));
            thread::sleep(Duration::from_millis(50));
        });
    });
}

#[test]
fn cancellation_is_deferred_until_a_callback_has_returned() {
    static WAITS: AtomicU32 = AtomicU32::new(0);
    static MAY_RETURN: AtomicBool = AtomicBool::new(false);
    static RETURNED: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
        while !MAY_RETURN.load(SeqCst) {
            WAITS.fetch_add(1, SeqCst);
            thread::sleep(Duration::from_micros(100));
            thread::yield_now();
        }
        RETURNED.store(true, SeqCst);
        0
    }
    alone("callbacks::cancellation_is_deferred_until_a_callback_has_returned", || {
        with_vps(2, || {
            let sorts = thread::spawn(|| {
                sort(compare);
                thread::sleep(FOREVER);
            });
            let wait_for_waits = |more| {
                let until = WAITS.load(SeqCst) + more;
                while WAITS.load(SeqCst) < until {
                    thread::sleep(Duration::from_micros(100));
                }
            };
            wait_for_waits(2);
            sorts.cancel();
            wait_for_waits(5);
            MAY_RETURN.store(true, SeqCst);
            assert!(sorts.join().expect_err("cancelled").is::<Cancelled>());
            assert!(RETURNED.load(SeqCst));
        });
    });
}

#[test]
fn cancellation_reaches_a_callback_that_catches_panics() {
    static CAUGHT: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
        if !CAUGHT.load(SeqCst) {
            let caught = catch_unwind(|| thread::sleep(FOREVER));
            CAUGHT.store(caught.is_err_and(|payload| payload.is::<Cancelled>()), SeqCst);
        }
        0
    }
    alone("callbacks::cancellation_reaches_a_callback_that_catches_panics", || {
        with_vps(2, || {
            let sorts = thread::spawn(|| {
                sort(compare);
                thread::sleep(FOREVER);
            });
            thread::sleep(Duration::from_millis(10));
            sorts.cancel();
            assert!(sorts.join().expect_err("cancelled").is::<Cancelled>());
            assert!(CAUGHT.load(SeqCst));
        });
    });
}
