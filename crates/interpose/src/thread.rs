//! pthread_create(3), pthread_join(3), pthread_exit(3) and their like.
//!
//! The record of a thread is a thread-local variable of this library, so it is at the same distance
//! from the address that is the `pthread_t` in each block. It lasts until the block is used again:
//! after the join, or after the end of a detached thread.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use kumihimo_arch::tls;
use kumihimo_runtime::park;
use kumihimo_runtime::thread::{self, Builder, JoinHandle};
use libc::{pthread_attr_t, pthread_t};

use crate::attributes::Plan;
use crate::deadline::Deadline;
use crate::{count, start};

/// It may unwind: pthread_exit(3) does so, up to `run_routine`.
pub(crate) type Routine = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// What a thread passes to the one that joins it.
struct Value(*mut c_void);

// SAFETY: POSIX passes the value from thread to thread; the program knows what it points to.
unsafe impl Send for Value {}

/// `PTHREAD_CANCELED` of <pthread.h>.
const CANCELED: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

/// The thread is a microprocess that this library has created.
const CREATED: u32 = 1;
/// The creator has stored the handle.
const HAS_HANDLE: u32 = 2;
const DETACHED: u32 = 4;
const JOINED: u32 = 8;

/// The record of a thread. All zeroes for a thread of the C library.
struct Record {
    state: AtomicU32,
    /// Valid between `HAS_HANDLE` and a join or the detachment.
    handle: UnsafeCell<MaybeUninit<JoinHandle<Value>>>,
    /// The value that the thread has passed to pthread_exit(3).
    exit_value: Cell<*mut c_void>,
    /// The stack that the program gave the thread, or null.
    stack: Cell<*mut c_void>,
    stack_size: Cell<usize>,
    number: Cell<u32>,
}

thread_local! {
    static RECORD: Record = const {
        Record {
            state: AtomicU32::new(0),
            handle: UnsafeCell::new(MaybeUninit::uninit()),
            exit_value: Cell::new(std::ptr::null_mut()),
            stack: Cell::new(std::ptr::null_mut()),
            stack_size: Cell::new(0),
            number: Cell::new(0),
        }
    };
}

/// Returns the record of `thread`.
///
/// # Safety
/// `thread` is the address of a thread's block.
unsafe fn record<'a>(thread: pthread_t) -> &'a Record {
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
unsafe fn created<'a>(thread: pthread_t) -> Option<&'a Record> {
    if !start::has_started() {
        return None;
    }
    // SAFETY: the caller's promise.
    let record = unsafe { record(thread) };
    (record.state.load(Ordering::Acquire) & CREATED != 0).then_some(record)
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

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_pthread_create(
    to: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    // A child of a bound microprocess inherits what its kernel thread has.
    let plan = if start::start() && !park::is_bound() {
        // SAFETY: the caller's promise.
        unsafe { Plan::of(attributes) }
    } else {
        None
    };
    let Some(plan) = plan else {
        count::KERNEL_THREADS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise. The C library's routines may unwind, as this one says.
        return unsafe {
            let routine =
                std::mem::transmute::<Routine, extern "C" fn(*mut c_void) -> *mut c_void>(routine);
            libc::pthread_create(to, attributes, routine, argument)
        };
    };
    // SAFETY: the caller's promise.
    match unsafe { create(to, &plan, Start::new(routine, argument, &plan)) } {
        Ok(()) => {
            count::MICROPROCESSES.fetch_add(1, Ordering::Relaxed);
            0
        }
        // As the C library for any lack of memory or threads.
        Err(_) => libc::EAGAIN,
    }
}

unsafe fn create(to: *mut pthread_t, plan: &Plan, start: Start) -> std::io::Result<()> {
    let state = CREATED | if plan.is_detached { DETACHED } else { 0 };
    let block = Cell::new(0);
    let on_block = |fs: usize| {
        block.set(fs);
        // SAFETY: the block of a microprocess that does not run yet; `to` is the program's.
        unsafe {
            let record = record(fs as pthread_t);
            record.stack.set(plan.stack.cast());
            record.stack_size.set(plan.stack_size);
            record.number.set(tls::get().number_of(fs));
            record.state.store(state, Ordering::Release);
            to.write(fs as pthread_t);
        }
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
    unsafe { (*record.handle.get()).write(handle) };
    // Release: a thread that joins reads the handle.
    if record.state.fetch_or(HAS_HANDLE, Ordering::AcqRel) & DETACHED != 0 {
        // It has detached itself meanwhile.
        // SAFETY: `detach` leaves the handle to the creator then.
        drop(unsafe { take(record) });
    }
    Ok(())
}

/// Takes the handle out of the record.
///
/// # Safety
/// It is there, and no other thread takes it.
unsafe fn take(record: &Record) -> JoinHandle<Value> {
    // SAFETY: the caller's promise.
    unsafe { (*record.handle.get()).assume_init_read() }
}

/// What a new thread runs.
#[repr(C)]
struct Start {
    /// Room for glibc's `__pthread_unwind_buf_t`, where the end by pthread_exit(3) or by
    /// cancellation leads.
    unwind: [u64; 32],
    routine: Routine,
    argument: *mut c_void,
    /// Top of the stack that the program gave the thread, or null.
    stack: *mut u8,
    value: *mut c_void,
    floating_point: FloatingPoint,
}

// SAFETY: the creator passes it to the thread.
unsafe impl Send for Start {}

impl Start {
    fn new(routine: Routine, argument: *mut c_void, plan: &Plan) -> Start {
        Start {
            unwind: [0; 32],
            routine,
            argument,
            stack: plan.stack_top(),
            value: std::ptr::null_mut(),
            floating_point: FloatingPoint::current(),
        }
    }

    fn run(mut self) -> Value {
        self.floating_point.apply();
        // SAFETY: the structure lives until the call returns.
        let has_exited = unsafe { run_routine(&mut self) };
        Value(if has_exited { RECORD.with(|record| record.exit_value.get()) } else { self.value })
    }
}

/// The control words of SSE and x87, which a thread inherits from its creator.
struct FloatingPoint {
    mxcsr: u32,
    control: u16,
}

impl FloatingPoint {
    fn current() -> FloatingPoint {
        let mut here = FloatingPoint { mxcsr: 0, control: 0 };
        // SAFETY: both instructions store to live memory.
        unsafe {
            std::arch::asm!(
                "stmxcsr [{0}]",
                "fnstcw [{1}]",
                in(reg) &raw mut here.mxcsr,
                in(reg) &raw mut here.control,
                options(nostack, preserves_flags)
            );
        }
        // A thread begins without exceptions (arch/x86/kernel/fpu of the kernel copies the
        // creator's state for a new thread, flags included; the C library's threads show the same).
        here
    }

    fn apply(&self) {
        // SAFETY: both words were stored by the instructions above.
        unsafe {
            std::arch::asm!(
                "ldmxcsr [{0}]",
                "fldcw [{1}]",
                in(reg) &raw const self.mxcsr,
                in(reg) &raw const self.control,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Calls the routine, as `start_thread` of glibc does (nptl/pthread_create.c), on the thread's own
/// stack or on the program's. Returns whether the thread has ended otherwise than by the return of
/// the routine: pthread_exit(3) and cancellation unwind the stack up to here, by `longjmp`.
///
/// No unwind information: to unwinders, a thread's stack ends here. An exception that nobody
/// catches terminates the program.
///
/// # Safety
/// `start` is live until the call returns, and the caller runs as the thread.
#[unsafe(naked)]
unsafe extern "C" fn run_routine(start: &mut Start) -> bool {
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rbx",
        "push r12",
        "mov rbx, rdi",
        "mov rax, [rbx + {stack}]",
        "test rax, rax",
        "je 2f",
        "mov rsp, rax",
        "2:",
        "lea rdi, [rbx + {unwind}]",
        "xor esi, esi",
        "call [rip + __sigsetjmp@GOTPCREL]",
        "test eax, eax",
        "jne 3f",
        "lea rdi, [rbx + {unwind}]",
        "call [rip + __pthread_register_cancel@GOTPCREL]",
        "mov rdi, [rbx + {argument}]",
        "call [rbx + {routine}]",
        "mov [rbx + {value}], rax",
        "lea rdi, [rbx + {unwind}]",
        "call [rip + __pthread_unregister_cancel@GOTPCREL]",
        "xor eax, eax",
        "jmp 4f",
        "3:",
        "mov eax, 1",
        "4:",
        "lea rsp, [rbp - 16]",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        stack = const std::mem::offset_of!(Start, stack),
        unwind = const std::mem::offset_of!(Start, unwind),
        argument = const std::mem::offset_of!(Start, argument),
        routine = const std::mem::offset_of!(Start, routine),
        value = const std::mem::offset_of!(Start, value),
    )
}

unsafe extern "C-unwind" {
    fn pthread_exit(value: *mut c_void) -> !;
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn kumi_interpose_pthread_exit(value: *mut c_void) -> ! {
    if is_created() {
        RECORD.with(|record| record.exit_value.set(value));
    }
    // Runs the cleanup handlers and destructors on the stack, and ends in `run_routine`.
    // SAFETY: the caller's promise.
    unsafe { pthread_exit(value) }
}

/// Joins `thread` until `deadline`. `real` is the C library's function for its own threads.
unsafe fn join_until(
    thread: pthread_t,
    value: *mut *mut c_void,
    deadline: Option<Deadline>,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(record) = (unsafe { created(thread) }) else { return real() };
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
    let handle = unsafe { take(record) };
    let outcome = match deadline.map(Deadline::instant) {
        None | Some(None) => handle.join(),
        Some(Some(instant)) => match handle.join_until(instant) {
            Ok(outcome) => outcome,
            Err(handle) => {
                // SAFETY: it was taken above.
                unsafe { (*record.handle.get()).write(handle) };
                // Release: the next one that joins reads the handle.
                record.state.fetch_and(!JOINED, Ordering::Release);
                return libc::ETIMEDOUT;
            }
        },
    };
    if !value.is_null() {
        let end = outcome.map_or(CANCELED, |Value(end)| end);
        // SAFETY: the caller's promise.
        unsafe { value.write(end) };
    }
    0
}

unsafe extern "C" {
    fn pthread_tryjoin_np(thread: pthread_t, value: *mut *mut c_void) -> c_int;
    fn pthread_timedjoin_np(
        thread: pthread_t,
        value: *mut *mut c_void,
        at: *const libc::timespec,
    ) -> c_int;
    fn pthread_clockjoin_np(
        thread: pthread_t,
        value: *mut *mut c_void,
        clock: libc::clockid_t,
        at: *const libc::timespec,
    ) -> c_int;
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_pthread_join(
    thread: pthread_t,
    value: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { join_until(thread, value, None, || libc::pthread_join(thread, value)) }
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
unsafe extern "C" fn kumi_interpose_pthread_timedjoin_np(
    thread: pthread_t,
    value: *mut *mut c_void,
    at: *const libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let real = || pthread_timedjoin_np(thread, value, at);
        join_at(thread, value, libc::CLOCK_REALTIME, at, real)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_clockjoin_np(
    thread: pthread_t,
    value: *mut *mut c_void,
    clock: libc::clockid_t,
    at: *const libc::timespec,
) -> c_int {
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
        drop(unsafe { take(record) });
    }
    0
}
