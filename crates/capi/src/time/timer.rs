//! Timers: a function that is called at a time, once or periodically.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use kumihimo::sync::{Condvar, Mutex};
use kumihimo::thread::{self, Builder, JoinHandle, Thread};

use crate::error::{Failure, catch_failure};
use crate::gate::bytes::{cleared_out, non_null};
use crate::thread::Start;

/// `kumi_timer`.
pub struct Timer {
    shared: Arc<Shared>,
    thread: JoinHandle<usize>,
}

struct Shared {
    is_stopped: Mutex<bool>,
    stopped: Condvar,
    first: Option<Instant>,
    interval: Duration,
    function: unsafe extern "C" fn(*mut c_void),
    arg: *mut c_void,
}

// SAFETY: by the interface's contract the function may run on any thread with this argument.
unsafe impl Send for Shared {}
// SAFETY: only the timer's thread uses the argument.
unsafe impl Sync for Shared {}

/// Function of the timer's thread.
unsafe extern "C" fn run(shared: *mut c_void) -> *mut c_void {
    // SAFETY: `kumi_timer_create` passes a count of an `Arc` to the thread.
    unsafe { Arc::from_raw(shared.cast::<Shared>()) }.run();
    std::ptr::null_mut()
}

impl Shared {
    /// Waits until `at`. Returns false if the timer was stopped before.
    fn wait_until(&self, at: Option<Instant>) -> bool {
        let mut is_stopped = self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if *is_stopped {
                return false;
            }
            is_stopped = match at {
                None => self.stopped.wait(is_stopped).unwrap_or_else(PoisonError::into_inner),
                Some(at) if Instant::now() >= at => return true,
                Some(at) => {
                    let waited = self.stopped.wait_until(is_stopped, at);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn run(&self) {
        let mut at = self.first;
        while self.wait_until(at) {
            // SAFETY: the interface's contract.
            unsafe { (self.function)(self.arg) };
            if self.interval.is_zero() {
                return;
            }
            // A call that takes longer than the interval delays the next ones, and is not followed
            // by several at once.
            let next = at.and_then(|at| at.checked_add(self.interval));
            at = next.map(|next| next.max(Instant::now()));
        }
    }
}

/// Starts a timer. See kumihimo/time.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_timer_create(
    out: *mut *mut Timer,
    first_ns: i64,
    interval_ns: i64,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    arg: *mut c_void,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let out = unsafe { cleared_out(out) }?;
        let function = function.ok_or_else(|| Failure::invalid("function is NULL"))?;
        let (Ok(first), Ok(interval)) = (u64::try_from(first_ns), u64::try_from(interval_ns))
        else {
            return Err(Failure::invalid(format!(
                "a timer after {first_ns} ns, every {interval_ns} ns: negative"
            )));
        };
        // A time beyond the clock's range never comes.
        let first = Instant::now().checked_add(Duration::from_nanos(first));
        let shared = Arc::new(Shared {
            is_stopped: Mutex::new(false),
            stopped: Condvar::new(),
            first,
            interval: Duration::from_nanos(interval),
            function,
            arg,
        });
        let for_thread = Arc::into_raw(shared.clone());
        let start = Start { routine: run, arg: for_thread.cast_mut().cast(), record: None };
        let builder = Builder::new().name("kumi-timer".into());
        let thread = start.spawn(builder, "cannot start a timer").inspect_err(|_| {
            // SAFETY: there is no thread that has this count.
            drop(unsafe { Arc::from_raw(for_thread) });
        })?;
        *out = Box::into_raw(Box::new(Timer { shared, thread }));
        Ok(())
    })
}

/// Stops a timer, waits for its function, and frees it. See kumihimo/time.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_timer_destroy(timer: *mut Timer) -> c_int {
    catch_failure(|| {
        if timer.is_null() {
            return Ok(());
        }
        // SAFETY: the interface's contract.
        let own: &Thread = unsafe { non_null(timer, "timer") }?.thread.thread();
        if own.id() == thread::current().id() {
            return Err(Failure::constant(
                libc::EDEADLK,
                c"a timer's function cannot wait for its own end",
            ));
        }
        // SAFETY: the interface's contract: from `kumi_timer_create`, and not used any more.
        let Timer { shared, thread: of_timer } = *unsafe { Box::from_raw(timer) };
        *shared.is_stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        shared.stopped.notify_one();
        // Not cancellable: the C program must keep the function's data until it has returned.
        thread::without_cancellation(|| drop(of_timer.join()));
        Ok(())
    })
}
