//! Threads of C programs: microprocesses. The `registry` knows them by their numbers.

mod registry;

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Instant;

use kumihimo::thread::{self, Builder, JoinHandle, Priority, Thread};

use crate::error::{Failure, catch_failure, io_failure};
use crate::gate::bytes::{self, Layout, non_null_mut};
use crate::sized::{self, Sized};
use crate::thread::registry::Record;
use crate::time;

/// `KUMI_THREAD_DETACHED`.
pub const DETACHED: u32 = 1;
/// `KUMI_THREAD_BOUND`.
pub const BOUND: u32 = 2;
/// `KUMI_THREAD_CANCELED`: the result of a thread that a cancellation has ended.
pub const CANCELED: usize = usize::MAX;

/// Function of a thread; NULL is `None`.
pub type Routine = Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>;

/// `kumi_thread_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadOptions {
    size: usize,
    stack_size: usize,
    name: *const c_char,
    priority: i32,
    flags: u32,
}

// SAFETY: as the trait requires. The name is read by `bytes::text`.
unsafe impl Sized for ThreadOptions {
    const LEAST: usize = 32;
    const INITIALISED_BY: &'static str = "KUMI_THREAD_OPTIONS_INIT";

    fn defaults() -> ThreadOptions {
        ThreadOptions {
            size: size_of::<ThreadOptions>(),
            stack_size: 0,
            name: std::ptr::null(),
            priority: -1,
            flags: 0,
        }
    }
}

impl ThreadOptions {
    /// # Safety
    /// `name` is NULL, or a string with a terminating zero.
    unsafe fn builder(&self) -> Result<Builder, Failure> {
        let mut builder = Builder::new();
        if self.stack_size != 0 {
            builder = builder.stack_size(self.stack_size);
        }
        if !self.name.is_null() {
            // SAFETY: the caller's contract.
            builder = builder.name(unsafe { bytes::text(self.name, "the thread's name") }?.into());
        }
        if self.priority != -1 {
            builder = builder.priority(priority(self.priority)?);
        }
        if self.flags & !(DETACHED | BOUND) != 0 {
            return Err(Failure::invalid(format!("unknown flags of a thread: {:#x}", self.flags)));
        }
        Ok(builder.bound(self.flags & BOUND != 0))
    }
}

fn priority(priority: c_int) -> Result<Priority, Failure> {
    u8::try_from(priority)
        .ok()
        .and_then(|priority| Priority::new(priority).ok())
        .ok_or_else(|| Failure::invalid(format!("priority {priority}: expected 0 to 63")))
}

/// Function of a thread and its argument.
pub(crate) struct Start {
    pub(crate) routine: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    pub(crate) arg: *mut c_void,
    /// `None` for a thread of the library.
    pub(crate) record: Option<Arc<Record>>,
}

// SAFETY: by the interface's contract the function may run on any thread with this argument.
unsafe impl Send for Start {}

impl Start {
    fn run(self) -> usize {
        if let Some(record) = &self.record {
            registry::begin(record.number);
        }
        // SAFETY: the interface's contract.
        let result = unsafe { (self.routine)(self.arg) };
        if let Some(record) = &self.record {
            record.end();
        }
        result.expose_provenance()
    }

    /// Starts the thread. The only place that does, because each one would have its own copy of
    /// what a thread begins and ends with.
    pub(crate) fn spawn(self, builder: Builder, what: &str) -> Result<JoinHandle<usize>, Failure> {
        builder.spawn(move || self.run()).map_err(|error| io_failure(&error, what))
    }
}

/// Starts a thread. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_thread_create(
    out: *mut u64,
    options: *const ThreadOptions,
    routine: Routine,
    arg: *mut c_void,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let out = unsafe { non_null_mut(out, "the place for the thread") }?;
        *out = 0;
        let options = if options.is_null() {
            ThreadOptions::defaults()
        } else {
            // SAFETY: the interface's contract.
            unsafe { sized::read(options) }?
        };
        // SAFETY: the interface's contract.
        let builder = unsafe { options.builder() }?;
        let routine = routine.ok_or_else(|| Failure::invalid("routine is NULL"))?;
        let record = Record::enter();
        // Other threads that have the number already wait until the handle is here.
        let mut state = record.state();
        // The new thread may find it there.
        *out = record.number;
        let start = Start { routine, arg, record: Some(record.clone()) };
        match start.spawn(builder, "cannot start a thread") {
            Ok(handle) => {
                let _ = record.thread.set(handle.thread().clone());
                state.handle = Some(handle);
                if options.flags & DETACHED != 0 {
                    drop(record.detach(state));
                }
                Ok(())
            }
            Err(error) => {
                drop(state);
                record.remove();
                *out = 0;
                Err(error)
            }
        }
    })
}

fn join(number: u64, deadline: Option<Instant>) -> Result<usize, Failure> {
    if number == registry::current() {
        return Err(Failure::constant(libc::EDEADLK, c"a thread cannot wait for its own end"));
    }
    let record = Record::find(number)?;
    loop {
        let mut state = record.state();
        let Some(handle) = state.handle.take() else {
            return Err(Failure::invalid(format!(
                "thread {number} is detached, or another thread joins it"
            )));
        };
        drop(state);
        match handle.join_uninterrupted(deadline) {
            Ok(result) => {
                record.remove();
                // The other case is a cancellation outside of the C function.
                return Ok(result.unwrap_or(CANCELED));
            }
            Err(handle) => record.state().handle = Some(handle),
        }
        // Unwinds if the caller is cancelled. The thread can still be joined.
        thread::cancellation_point();
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Failure::constant(
                libc::ETIMEDOUT,
                c"the thread did not end within the time limit",
            ));
        }
    }
}

/// Waits for the end of a thread. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_thread_join(number: u64, result: *mut *mut c_void) -> c_int {
    // SAFETY: the interface's contract.
    unsafe { kumi_thread_timedjoin(number, result, time::FOREVER) }
}

/// Waits for the end of a thread within a time limit. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_thread_timedjoin(
    number: u64,
    result: *mut *mut c_void,
    timeout_ns: i64,
) -> c_int {
    catch_failure(|| {
        let value = join(number, time::deadline(timeout_ns)?)?;
        if !result.is_null() {
            // SAFETY: the interface's contract.
            *unsafe { non_null_mut(result, "result") }? =
                std::ptr::with_exposed_provenance_mut(value);
        }
        Ok(())
    })
}

/// Lets a thread end without a join. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_thread_detach(number: u64) -> c_int {
    catch_failure(|| {
        let record = Record::find(number)?;
        let state = record.state();
        if state.handle.is_none() {
            return Err(Failure::invalid(format!(
                "thread {number} is detached, or another thread joins it"
            )));
        }
        drop(record.detach(state));
        Ok(())
    })
}

/// Returns the number of the caller. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_thread_self() -> u64 {
    registry::current()
}

/// Returns whether the caller is a microprocess. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_thread_is_microprocess() -> c_int {
    c_int::from(thread::current().is_microprocess())
}

/// Lets other threads run. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_thread_yield() -> c_int {
    catch_failure(|| {
        thread::yield_now();
        Ok(())
    })
}

/// Calls `f` with the thread, which may be the caller.
fn with_thread<R>(number: u64, f: impl FnOnce(&Thread) -> R) -> Result<R, Failure> {
    if number == registry::current() {
        return Ok(f(&thread::current()));
    }
    let record = Record::find(number)?;
    // While the thread starts, its creator holds this lock.
    drop(record.state());
    let thread = record.thread.get();
    thread.map(f).ok_or_else(|| Failure::new(libc::ESRCH, format!("thread {number} has ended")))
}

/// Requests the cancellation of a thread. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_thread_cancel(number: u64) -> c_int {
    catch_failure(|| with_thread(number, Thread::cancel))
}

/// Returns whether the cancellation of the caller was requested. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_thread_cancelled() -> c_int {
    c_int::from(thread::cancel_requested())
}

/// Sets the priority of a thread. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_thread_set_priority(number: u64, new: c_int) -> c_int {
    catch_failure(|| {
        let new = priority(new)?;
        with_thread(number, |thread| thread.set_priority(new))
    })
}

/// Stores the priority of a thread. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_thread_priority(number: u64, out: *mut c_int) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let out = unsafe { non_null_mut(out, "the place for the priority") }?;
        *out = with_thread(number, |thread| c_int::from(thread.priority().get()))?;
        Ok(())
    })
}

/// Calls a function that may block in the kernel. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_thread_blocking(
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    arg: *mut c_void,
) -> c_int {
    catch_failure(|| {
        let function = function.ok_or_else(|| Failure::invalid("function is NULL"))?;
        // SAFETY: the interface's contract.
        thread::blocking(|| unsafe { function(arg) });
        Ok(())
    })
}

/// Calls a function with the cancellation of the caller deferred. See kumihimo/thread.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_thread_without_cancellation(
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    arg: *mut c_void,
) -> c_int {
    catch_failure(|| {
        let function = function.ok_or_else(|| Failure::invalid("function is NULL"))?;
        // SAFETY: the interface's contract.
        thread::without_cancellation(|| unsafe { function(arg) });
        Ok(())
    })
}

/// Name, size, and names and offsets of the fields, which a test compares with the header.
#[doc(hidden)]
pub const LAYOUT: Layout = (
    "kumi_thread_options",
    size_of::<ThreadOptions>(),
    &[
        ("size", offset_of!(ThreadOptions, size)),
        ("stack_size", offset_of!(ThreadOptions, stack_size)),
        ("name", offset_of!(ThreadOptions, name)),
        ("priority", offset_of!(ThreadOptions, priority)),
        ("flags", offset_of!(ThreadOptions, flags)),
    ],
);
