//! pthread_create(3), pthread_join(3), pthread_exit(3) and their like.
//!
//! [`entry`]: the first and the last step of a thread; its [`record`]; [`attributes`];
//! [`identity`], [`scheduling`] and [`scheduling_calls`]; the [`last`] one; the [`call`] that it
//! makes.

pub(crate) mod attributes;
pub(crate) mod call;
pub(crate) mod entry;
pub(crate) mod identity;
pub(crate) mod last;
pub(crate) mod record;
pub(crate) mod scheduling;
pub(crate) mod scheduling_calls;

use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use kumihimo_arch::tls;
use kumihimo_runtime::park;
use kumihimo_runtime::thread::{self, Builder, JoinHandle};
use libc::{pthread_attr_t, pthread_t};

use crate::real::libc;
use crate::real::libc::{
    pthread_clockjoin_np, pthread_exit, pthread_timedjoin_np, pthread_tryjoin_np,
};
use crate::signal::cancel;
use crate::signal::section::{Section, handle_interruption};
use crate::start::{count, linked};
use crate::thread::attributes::Plan;
use crate::thread::entry::Start;
use crate::thread::record::{
    CANCELED, CREATED, DETACHED, HAS_HANDLE, JOINED, RECORD, Routine, Value, created, has_ended,
    is_created, own_signals, record,
};
use crate::time::deadline::Deadline;
use crate::{signal, start};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_pthread_create(
    to: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    if linked::creates_for_runtime() {
        // SAFETY: the caller's promise, as below.
        return unsafe {
            let routine =
                std::mem::transmute::<Routine, extern "C" fn(*mut c_void) -> *mut c_void>(routine);
            libc::pthread_create(to, attributes, routine, argument)
        };
    }
    // A child of a bound microprocess inherits what its kernel thread has.
    let plan = if start::start() && !park::is_bound() {
        // SAFETY: the caller's promise.
        unsafe { Plan::of(attributes) }
    } else {
        None
    };
    let Some(plan) = plan else {
        let create = |routine: Routine, argument| {
            // SAFETY: the caller's promise. The C library's routines may unwind, as this one says.
            unsafe {
                let routine = std::mem::transmute::<
                    Routine,
                    extern "C" fn(*mut c_void) -> *mut c_void,
                >(routine);
                libc::pthread_create(to, attributes, routine, argument)
            }
        };
        return last::counted(routine, argument, create);
    };
    // SAFETY: the caller's promise.
    match unsafe { create(to, &plan, Start::new(routine, argument, &plan)) } {
        Ok(()) => 0,
        // As the C library for any lack of memory or threads.
        Err(_) => libc::EAGAIN,
    }
}

unsafe fn create(to: *mut pthread_t, plan: &Plan, start: Start) -> std::io::Result<()> {
    let state = CREATED | if plan.is_detached { DETACHED } else { 0 };
    let block = Cell::new(0);
    let mask = signal::process::mask_for_child();
    let on_block = |fs: usize| {
        block.set(fs);
        // SAFETY: the block of a microprocess that does not run yet; `to` is the program's.
        unsafe {
            let record = record(fs as pthread_t);
            record.stack.set(plan.stack.cast());
            record.stack_size.set(plan.stack_size);
            record.number.set(tls::get().number_of(fs));
            // Signals may come before it runs.
            record.signals.inherit_mask(mask);
            record.state.store(state, Ordering::Release);
            to.write(fs as pthread_t);
        }
        // Nothing can fail from here on, and the thread may end the process at once.
        last::thread_begins();
        count::microprocess();
    };
    let builder = Builder::new().stack_size(plan.slot_size());
    // SAFETY: what the routine uses is the program's own concern, as with any thread.
    let handle = unsafe { builder.spawn_on_block(&on_block, move || start.run())? };
    if plan.is_detached {
        return Ok(());
    }
    // SAFETY: the handle keeps the block from being used again.
    let record = unsafe { record(block.get() as pthread_t) };
    // SAFETY: until `HAS_HANDLE` is set, no other thread accesses it.
    unsafe { record.put(handle) };
    // Release: a thread that joins reads the handle.
    if record.state.fetch_or(HAS_HANDLE, Ordering::AcqRel) & DETACHED != 0 {
        // It has detached itself meanwhile.
        // SAFETY: `detach` leaves the handle to the creator then.
        drop(unsafe { record.take() });
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn kumi_interpose_pthread_exit(value: *mut c_void) -> ! {
    if is_created() {
        RECORD.with(|record| record.exit_value.set(value));
        own_signals().cancel.is_over();
    }
    // Runs the cleanup handlers and destructors on the stack, and ends in `run_routine`.
    // SAFETY: the caller's promise.
    unsafe { pthread_exit(value) }
}

type Outcome = Result<Value, Box<dyn Any + Send>>;

/// Waits until the thread has ended. Returns the handle at the deadline, or if the caller is
/// cancelled.
fn wait_for_end(
    mut handle: JoinHandle<Value>,
    deadline: Option<Deadline>,
) -> Result<Outcome, JoinHandle<Value>> {
    let _section = Section::enter();
    own_signals().note_waiter();
    loop {
        handle = match handle.join_uninterrupted(deadline.and_then(Deadline::instant)) {
            Ok(outcome) => return Ok(outcome),
            Err(handle) => handle,
        };
        if deadline.is_some_and(Deadline::has_passed) {
            return Err(handle);
        }
        // A handler does not end the wait (pthread_join(3)).
        handle_interruption();
        if own_signals().cancel.is_due() {
            return Err(handle);
        }
    }
}

/// Joins `thread` until `deadline`. `real` is the C library's function for its own threads.
unsafe fn join_until(
    thread: pthread_t,
    value: *mut *mut c_void,
    deadline: Option<Deadline>,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(record) = (unsafe { created(thread) }) else {
        // SAFETY: as above.
        let has_ended = unsafe { has_ended(thread) };
        return if has_ended { libc::EINVAL } else { real() };
    };
    if thread as usize == kumihimo_arch::cpu::fs_base() {
        return libc::EDEADLK;
    }
    // The creator is about to store the handle: the new thread has told another one its name.
    while record.state.load(Ordering::Acquire) & (HAS_HANDLE | DETACHED) == 0 {
        thread::yield_now();
    }
    if record.state.fetch_or(JOINED, Ordering::AcqRel) & (DETACHED | JOINED) != 0 {
        return libc::EINVAL;
    }
    // SAFETY: only the first one that sets `JOINED` takes the handle.
    let handle = unsafe { record.take() };
    let outcome = match wait_for_end(handle, deadline) {
        Ok(outcome) => outcome,
        Err(handle) => {
            // SAFETY: it was taken above.
            unsafe { record.put(handle) };
            // Release: the next one that joins reads the handle.
            record.state.fetch_and(!JOINED, Ordering::Release);
            return libc::ETIMEDOUT;
        }
    };
    if !value.is_null() {
        let end = outcome.map_or(CANCELED, |Value(end)| end);
        // SAFETY: the caller's promise.
        unsafe { value.write(end) };
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn kumi_interpose_pthread_join(
    thread: pthread_t,
    value: *mut *mut c_void,
) -> c_int {
    loop {
        cancel::point();
        // SAFETY: the caller's promise.
        match unsafe { join_until(thread, value, None, || libc::pthread_join(thread, value)) } {
            // The caller is cancelled.
            libc::ETIMEDOUT => {}
            done => return done,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_tryjoin_np(
    thread: pthread_t,
    value: *mut *mut c_void,
) -> c_int {
    let past = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let past = Some(Deadline::At(libc::CLOCK_MONOTONIC, past));
    // SAFETY: the caller's promise.
    match unsafe { join_until(thread, value, past, || pthread_tryjoin_np(thread, value)) } {
        libc::ETIMEDOUT => libc::EBUSY,
        done => done,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_pthread_timedjoin_np(
    thread: pthread_t,
    value: *mut *mut c_void,
    at: *const libc::timespec,
) -> c_int {
    cancel::point();
    // SAFETY: the caller's promise.
    unsafe {
        let real = || pthread_timedjoin_np(thread, value, at);
        join_at(thread, value, libc::CLOCK_REALTIME, at, real)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_pthread_clockjoin_np(
    thread: pthread_t,
    value: *mut *mut c_void,
    clock: libc::clockid_t,
    at: *const libc::timespec,
) -> c_int {
    cancel::point();
    // SAFETY: the caller's promise.
    unsafe {
        let real = || pthread_clockjoin_np(thread, value, clock, at);
        join_at(thread, value, clock, at, real)
    }
}

/// As `join_until`, with a time of the program, or null for none.
unsafe fn join_at(
    thread: pthread_t,
    value: *mut *mut c_void,
    clock: libc::clockid_t,
    at: *const libc::timespec,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if at.is_null() {
            return join_until(thread, value, None, real);
        }
        match Deadline::at(clock, at) {
            Ok(deadline) => join_until(thread, value, Some(deadline), real),
            Err(error) => error,
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_pthread_detach(thread: pthread_t) -> c_int {
    // SAFETY: the caller's promise.
    let Some(record) = (unsafe { created(thread) }) else {
        // SAFETY: as above.
        return unsafe { libc::pthread_detach(thread) };
    };
    let before = record.state.fetch_or(DETACHED, Ordering::AcqRel);
    if before & (DETACHED | JOINED) != 0 {
        return libc::EINVAL;
    }
    if before & HAS_HANDLE != 0 {
        // SAFETY: only the first one that sets `DETACHED` takes the handle.
        drop(unsafe { record.take() });
    }
    0
}
