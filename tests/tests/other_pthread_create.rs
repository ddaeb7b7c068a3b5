//! A program with a definition of pthread_create of its own, as sanitizers have one: std's threads
//! do not pass through Kumihimo's.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(kumihimo_asan)))]

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use kumihimo::runtime::Runtime;
use kumihimo::thread::Builder;
use kumihimo_tests::process::{alone, kernel_threads, one_to_one, others_sleep};
use kumihimo_tests::skip;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    Start,
    *mut c_void,
) -> c_int;

static CREATED: AtomicUsize = AtomicUsize::new(0);

/// Counts, and calls the C library's.
///
/// # Safety
/// Same requirements as pthread_create(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    CREATED.fetch_add(1, SeqCst);
    // SAFETY: the name is NUL-terminated; the next definition is the C library's, of that type.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr());
        assert!(!next.is_null());
        std::mem::transmute::<*mut c_void, Create>(next)(thread, attributes, start, argument)
    }
}

#[test]
fn named_microprocess_runs_without_a_name_in_std() {
    let name = "named_microprocess_runs_without_a_name_in_std";
    alone(name, || {
        Runtime::builder().vps(1).build().expect("a runtime").run(|| {
            if one_to_one() {
                return skip(name, "std begins its threads itself");
            }
            assert!(CREATED.load(SeqCst) > 0, "std's threads do not pass through this program's");
            // A spare is started beside this microprocess, and must not be missed.
            others_sleep();
            let (created, threads) = (CREATED.load(SeqCst), kernel_threads());
            let held = Arc::new(());
            for _ in 0..100 {
                let copy = held.clone();
                let handle = Builder::new().name("reader".into()).spawn(move || {
                    drop(copy);
                    std::thread::current().name().map(str::to_owned)
                });
                let handle = handle.expect("it begins");
                assert_eq!(handle.thread().name(), Some("reader"));
                assert_eq!(handle.join().expect("no panic"), None);
            }
            assert_eq!(Arc::strong_count(&held), 1);
            // The main microprocess was the only attempt, and its kernel thread may end meanwhile.
            assert_eq!(CREATED.load(SeqCst), created);
            assert!(kernel_threads() <= threads);
        });
    });
}
