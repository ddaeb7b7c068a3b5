//! Capture of a thread's start: what std would run on a new kernel thread, for a microprocess to
//! run instead.
//!
//! std sets the name of the current thread in one place only: in the start routine that
//! `std::thread::Builder::spawn` passes to pthread_create(3). The runtime has std prepare a thread
//! inside [`capture`], which creates no kernel thread, and a microprocess calls the start routine
//! on its own stack and TLS block. For std, the microprocess is then that thread.
//!
//! pthread_create is defined here as a weak symbol. A sanitizer or an allocator that defines it as
//! well takes precedence, and [`capture`] returns no start then.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicUsize;

use crate::glibc::hook::hooked;
use crate::glibc::tls::next;

/// A start routine of pthread_create(3) and its argument.
#[derive(Debug)]
pub struct ThreadStart {
    routine: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
}

// SAFETY: the creator of a thread hands both to another thread.
unsafe impl Send for ThreadStart {}

/// Where a call of pthread_create leaves its start.
type Place = Cell<Option<ThreadStart>>;

/// Bytes of stack that std uses at most between [`capture`] and its call of pthread_create.
const REACH: usize = 64 << 10;

thread_local! {
    static ARMED: Cell<*const Place> = const { Cell::new(std::ptr::null()) };
}

/// Runs `f`. Its first call of pthread_create creates no thread and returns 0; the second result is
/// what it was to start. Later calls create threads.
pub fn capture<R>(f: impl FnOnce() -> R) -> (R, Option<ThreadStart>) {
    /// Disarms, also if `f` panics.
    struct Armed;
    impl Drop for Armed {
        fn drop(&mut self) {
            ARMED.set(std::ptr::null());
        }
    }
    let place = Place::new(None);
    ARMED.set(&raw const place);
    let armed = Armed;
    let result = f();
    drop(armed);
    (result, place.into_inner())
}

impl ThreadStart {
    /// Runs the start routine on the calling microprocess.
    ///
    /// # Safety
    /// No code has used std's handle or ID of the current thread on the caller's TLS block since it
    /// was built or recycled.
    pub unsafe fn run(self) {
        (self.routine)(self.argument);
    }

    /// Runs the start routine on a new kernel thread, detached. Returns false if none can be
    /// created.
    pub fn run_on_kernel_thread(self) -> bool {
        // SAFETY: the attributes are initialised before use; the routine is that of a thread.
        unsafe {
            let mut id: libc::pthread_t = 0;
            if create(&mut id, std::ptr::null(), self.routine, self.argument) != 0 {
                return false;
            }
            libc::pthread_detach(id);
        }
        true
    }
}

/// A lean microprocess shares the thread-local with others, and only a call on the stack of
/// `capture` belongs to it.
fn is_armed(armed: *const Place) -> bool {
    let here = std::ptr::from_ref(&armed).addr();
    !armed.is_null() && (here..here + REACH).contains(&armed.addr())
}

/// Whether the next call of pthread_create is for [`capture`].
pub fn is_captured() -> bool {
    is_armed(ARMED.get())
}

hooked!(weak PTHREAD_CREATE, "pthread_create", create);

type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;

/// Replaces pthread_create(3).
///
/// # Safety
/// Same requirements as pthread_create(3).
pub unsafe extern "C" fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    routine: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    let armed = ARMED.get();
    if is_armed(armed) {
        ARMED.set(std::ptr::null());
        // SAFETY: `capture` waits for this call, above on the same stack; the caller provides
        // `thread`.
        unsafe {
            (*armed).set(Some(ThreadStart { routine, argument }));
            thread.write(0);
        }
        return 0;
    }
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let Some(at) = next(&NEXT, c"pthread_create") else { return libc::ENOSYS };
    // SAFETY: the address belongs to a function of that type; the caller upholds the rest.
    unsafe { std::mem::transmute::<usize, Create>(at)(thread, attributes, routine, argument) }
}
