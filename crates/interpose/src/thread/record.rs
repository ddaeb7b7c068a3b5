//! The record of a thread.
//!
//! It is a thread-local variable of this library, so it is at the same distance from the address
//! that is the `pthread_t` in each block. It lasts until the block is used again: after the join,
//! or after the end of a detached thread.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use kumihimo_arch::tls;
use kumihimo_runtime::thread::JoinHandle;
use libc::pthread_t;

use crate::real::libc;
use crate::signal::thread::Signals;
use crate::start::phase;
use crate::thread::scheduling::Scheduling;

/// What a thread runs. It may unwind: pthread_exit(3) does so, up to `run_routine`.
pub(crate) type Routine = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// What a thread passes to the one that joins it.
pub(crate) struct Value(pub(crate) *mut c_void);

// SAFETY: POSIX passes the value from thread to thread; the program knows what it points to.
unsafe impl Send for Value {}

/// `PTHREAD_CANCELED` of <pthread.h>.
pub(crate) const CANCELED: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

/// The thread is a microprocess that this library has created.
pub(crate) const CREATED: u32 = 1;
/// The creator has stored the handle.
pub(crate) const HAS_HANDLE: u32 = 2;
pub(crate) const DETACHED: u32 = 4;
pub(crate) const JOINED: u32 = 8;

/// The record of a thread. All zeroes for a thread of the C library.
pub(crate) struct Record {
    pub(crate) state: AtomicU32,
    /// Valid between `HAS_HANDLE` and a join or the detachment.
    pub(crate) handle: UnsafeCell<MaybeUninit<JoinHandle<Value>>>,
    /// The value that the thread has passed to pthread_exit(3).
    pub(crate) exit_value: Cell<*mut c_void>,
    /// The stack that the program gave the thread, or null.
    pub(crate) stack: Cell<*mut c_void>,
    pub(crate) stack_size: Cell<usize>,
    pub(crate) number: Cell<u32>,
    pub(crate) scheduling: Scheduling,
    pub(crate) signals: Signals,
}

thread_local! {
    pub(crate) static RECORD: Record = const {
        Record {
            state: AtomicU32::new(0),
            handle: UnsafeCell::new(MaybeUninit::uninit()),
            exit_value: Cell::new(std::ptr::null_mut()),
            stack: Cell::new(std::ptr::null_mut()),
            stack_size: Cell::new(0),
            number: Cell::new(0),
            scheduling: Scheduling::new(),
            signals: Signals::new(),
        }
    };
}

/// Returns the record of `thread`.
///
/// # Safety
/// `thread` is the address of a thread's block.
pub(crate) unsafe fn record<'a>(thread: pthread_t) -> &'a Record {
    let own = RECORD.with(|record| std::ptr::from_ref(record).addr());
    let distance = own.wrapping_sub(kumihimo_arch::cpu::fs_base());
    // SAFETY: the caller's promise. This library is loaded at the start of the program, so its
    // thread-local variables are in each block, at the same distance from its address.
    unsafe {
        &*std::ptr::with_exposed_provenance::<Record>((thread as usize).wrapping_add(distance))
    }
}

/// Returns the record of `thread` if it is a microprocess of this library.
///
/// # Safety
/// As [`record`].
pub(crate) unsafe fn created<'a>(thread: pthread_t) -> Option<&'a Record> {
    if !phase::has_started() {
        return None;
    }
    // SAFETY: the caller's promise.
    let record = unsafe { record(thread) };
    (record.state.load(Ordering::Acquire) & CREATED != 0).then_some(record)
}

/// Whether `thread` was a detached microprocess that has ended, and no later one has its block yet.
/// The C library returns EINVAL for such a thread as long as its memory is there, and stunnel joins
/// some.
///
/// # Safety
/// As [`record`].
pub(crate) unsafe fn has_ended(thread: pthread_t) -> bool {
    // A number of the kernel belongs to no block.
    // SAFETY: the caller's promise.
    let number = || unsafe { tls::get().number_of(thread as usize) };
    phase::has_started() && tls::block_of(number()) == Some(thread as usize)
}

/// The number of the calling thread, which the C library's locks store as their owner.
#[inline]
pub(crate) fn number() -> c_int {
    tls::get().number().cast_signed()
}

/// The number of `thread` if it is a microprocess of this library.
///
/// # Safety
/// As [`record`].
pub(crate) unsafe fn number_of(thread: pthread_t) -> Option<u32> {
    // SAFETY: the caller's promise.
    unsafe { created(thread) }.map(|record| record.number.get())
}

/// The living thread of this library with this number.
pub(crate) fn with_number(number: u32) -> Option<pthread_t> {
    let thread = tls::block_of(number)? as pthread_t;
    // SAFETY: blocks are never freed.
    unsafe { created(thread) }.map(|_| thread)
}

/// Whether the caller is a microprocess of this library.
pub(crate) fn is_created() -> bool {
    RECORD.with(|record| record.state.load(Ordering::Relaxed) & CREATED != 0)
}

/// The stack that the program gave `thread`, if it did.
///
/// # Safety
/// As [`record`].
pub(crate) unsafe fn own_stack(thread: pthread_t) -> Option<(*mut c_void, usize)> {
    // SAFETY: the caller's promise.
    let record = unsafe { created(thread) }?;
    (!record.stack.get().is_null()).then(|| (record.stack.get(), record.stack_size.get()))
}

/// Whether `thread` is detached. `None` if it is not of this library.
///
/// # Safety
/// As [`record`].
pub(crate) unsafe fn is_detached(thread: pthread_t) -> Option<bool> {
    // SAFETY: the caller's promise.
    let record = unsafe { created(thread) }?;
    Some(record.state.load(Ordering::Relaxed) & DETACHED != 0)
}

impl Record {
    /// Stores the handle.
    ///
    /// # Safety
    /// No other thread accesses it.
    pub(crate) unsafe fn put(&self, handle: JoinHandle<Value>) {
        // SAFETY: the caller's promise.
        unsafe { (*self.handle.get()).write(handle) };
    }

    /// Takes the handle out.
    ///
    /// # Safety
    /// It is there, and no other thread takes it.
    pub(crate) unsafe fn take(&self) -> JoinHandle<Value> {
        // SAFETY: the caller's promise.
        unsafe { (*self.handle.get()).assume_init_read() }
    }
}

/// The signals of the calling thread.
#[inline]
pub(crate) fn own_signals<'a>() -> &'a Signals {
    let own = RECORD.with(|record| std::ptr::from_ref(&record.signals));
    // SAFETY: in the thread's block, which lives as long as the thread.
    unsafe { &*own }
}
