//! Injects calls into interrupted code as often as possible, and checks that no register of AArch64
//! changes. `inject.rs` is the same for x86_64.
#![cfg(all(target_arch = "aarch64", target_os = "linux", target_env = "gnu"))]

mod harness;
#[path = "inject_aarch64/hold.rs"]
#[rustfmt::skip] // assembly: several short instructions per line
mod hold;

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

use harness::{Micro, again};
use kumihimo_arch::cpu;
use kumihimo_arch::inject::{self, Refusal, inject, interrupted_on, room_needed};
use kumihimo_arch::{overflow, regions};
use libc::ucontext_t;

/// Number of calls that each part of a test injects.
const CALLS: u64 = 300;
const SPINS: u64 = 20_000;

/// The microprocess that receives the signals; null while it is not to be interrupted.
static TARGET: AtomicPtr<Fire> = AtomicPtr::new(std::ptr::null_mut());

struct Fire {
    stack: Range<usize>,
    upcall: extern "C" fn(),
    injected: AtomicU64,
    begun: AtomicU64,
    /// Calls that began with another FPCR than that of a new thread.
    crooked: AtomicU64,
}

fn target() -> &'static Fire {
    // SAFETY: null or a leaked box.
    unsafe { TARGET.load(Acquire).as_ref() }.expect("a test under fire")
}

/// Whether the target is suspended, or about to be. Like the runtime's mask, it is set in the
/// handler, and cleared when the microprocess runs again.
static MASKED: AtomicBool = AtomicBool::new(true);

/// Uses no thread-local variable, because the thread pointer may be that of the carrier.
extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: null or a leaked box; the context is the kernel's.
    unsafe {
        let Some(fire) = TARGET.load(Acquire).as_ref() else { return };
        let context = context.cast::<ucontext_t>();
        if !MASKED.load(Acquire)
            && !is_guarded()
            && interrupted_on(context, fire.stack.clone())
            && !regions::is_closed((*context).uc_mcontext.pc as usize)
            && inject(context, fire.upcall, fire.stack.start).is_ok()
        {
            MASKED.store(true, Release);
            fire.injected.fetch_add(1, Relaxed);
        }
    }
}

/// Counts a call; `hold::rude` calls it with the FPCR with which it started.
extern "C" fn count(fpcr: u64) {
    let fire = target();
    fire.crooked.fetch_add(u64::from(fpcr != 0), Relaxed);
    fire.begun.fetch_add(1, Relaxed);
}

/// An upcall that stays on its kernel thread and overwrites all that a function may.
extern "C" fn stay() {
    hold::rude();
    MASKED.store(false, Release);
}

/// An upcall after which the other carrier resumes the microprocess.
extern "C" fn wander() {
    hold::rude();
    harness::pause();
    MASKED.store(false, Release);
}

fn handle(handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void), flags: c_int) {
    // SAFETY: installs a handler of the right type.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | flags;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}

/// Runs `body` as a microprocess that two carriers resume in turn, under signals to both. Each
/// signal injects `upcall` if possible.
fn under_fire(upcall: extern "C" fn(), body: fn()) {
    inject::prepare();
    regions::prepare();
    handle(on_signal, libc::SA_ONSTACK);
    let mut micro = Micro::new(256 << 10, move || {
        MASKED.store(false, Release);
        body();
        MASKED.store(true, Release);
    });
    let fire: &Fire = Box::leak(Box::new(Fire {
        stack: micro.lo as usize..micro.hi as usize,
        upcall,
        injected: AtomicU64::new(0),
        begun: AtomicU64::new(0),
        crooked: AtomicU64::new(0),
    }));
    TARGET.store(std::ptr::from_ref(fire).cast_mut(), Release);
    let (ended, turn) = (AtomicBool::new(false), AtomicUsize::new(0));
    let one = AtomicPtr::new(&raw mut *micro);
    std::thread::scope(|scope| {
        for me in 0..2 {
            let (ended, turn, one) = (&ended, &turn, &one);
            scope.spawn(move || {
                let _alternate = overflow::alt_stack_for_this_thread().expect("a signal stack");
                // SAFETY: pthread_self has no preconditions.
                let thread = unsafe { libc::pthread_self() };
                let over = &AtomicBool::new(false);
                std::thread::scope(|inner| {
                    inner.spawn(move || {
                        while !over.load(Acquire) {
                            // SAFETY: the thread waits for this one before it ends.
                            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                            std::thread::yield_now();
                        }
                    });
                    // No allocation in this loop: the microprocess may hold a lock of malloc.
                    while !ended.load(Acquire) {
                        if turn.load(Acquire) != me {
                            std::thread::yield_now();
                            continue;
                        }
                        // SAFETY: only the carrier whose turn it is touches the microprocess.
                        if unsafe { (*one.load(Relaxed)).resume() } {
                            ended.store(true, Release);
                        }
                        turn.store(1 - me, Release);
                    }
                    over.store(true, Release);
                });
            });
        }
    });
    TARGET.store(std::ptr::null_mut(), Release);
    assert!(!micro.panicked(), "the microprocess panicked");
    assert_eq!(fire.begun.load(Relaxed), fire.injected.load(Relaxed), "every injected call ran");
    assert_eq!(fire.crooked.load(Relaxed), 0, "calls began with another FPCR");
}

/// Repeats `round` until [`CALLS`] further calls were injected.
fn until(mut round: impl FnMut(u64)) {
    let end = target().injected.load(Relaxed) + CALLS;
    let mut number = 0;
    while target().injected.load(Relaxed) < end {
        number += 1;
        round(number);
    }
}

/// Returns pseudo-random words.
fn words<const N: usize>(seed: u64) -> [u64; N] {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

/// Holds values in each class of registers.
fn all_registers() {
    until(|n| {
        let (values, mut out) = (words(n), [0; hold::GENERAL]);
        // SAFETY: both arrays are complete.
        unsafe { hold::general(&values, &mut out, SPINS) };
        assert_eq!(out, values);
    });
    until(|n| {
        let (values, mut out) = (words(n), [0; 64]);
        // SAFETY: both arrays are complete.
        unsafe { hold::vectors(&values, &mut out, SPINS) };
        assert_eq!(out, values);
    });
    until(|n| {
        // N, Z, C and V; the rounding mode and flush to zero; the cumulative exception bits.
        let flags = (n & 15) << 28;
        let (control, status) = ((n & 7) << 22, n & 0x1f);
        let mut out = [0; 3];
        // SAFETY: three words; the function restores FPCR and FPSR.
        unsafe { hold::flags(&[flags, control, status], &mut out, SPINS) };
        assert_eq!(out, [flags, control, status]);
    });
    let (a, b) = (words::<1024>(3), words::<1024>(5));
    let mut expected = [0; 1024];
    let mut carry = true;
    for i in 0..1024 {
        let (sum, first) = a[i].overflowing_add(b[i]);
        let (sum, second) = sum.overflowing_add(u64::from(carry));
        (expected[i], carry) = (sum, first | second);
    }
    until(|_| {
        let mut sum = [0; 1024];
        // SAFETY: three arrays of 1024 words.
        let last = unsafe { hold::add(sum.as_mut_ptr(), a.as_ptr(), b.as_ptr(), 1024) };
        assert!(last == u64::from(carry) && sum == expected, "a carry was lost");
    });
}

#[test]
fn injected_calls_change_no_register() {
    needs_blocks!();
    again::alone("injected_calls_change_no_register", || under_fire(stay, all_registers));
}

#[test]
fn registers_survive_a_change_of_the_kernel_thread() {
    needs_blocks!();
    const NAME: &str = "registers_survive_a_change_of_the_kernel_thread";
    again::alone(NAME, || under_fire(wander, all_registers));
}

/// The record of a carrier, with a guard as the runtime's kernel threads have one.
#[repr(C)]
struct Guarded {
    this: usize,
    guard: u32,
}

const GUARD: usize = std::mem::offset_of!(Guarded, guard);

/// Whether the kernel thread that runs the handler has a record whose guard is up.
fn is_guarded() -> bool {
    let record = cpu::gs_base();
    // SAFETY: 0, or a leaked record.
    record != 0 && unsafe { (*(record as *const Guarded)).guard } != 0
}

/// Gives the calling carrier a record.
fn begin_carrier() {
    if cpu::gs_base() == 0 {
        let record = Box::leak(Box::new(Guarded { this: 0, guard: 0 }));
        record.this = std::ptr::from_mut(record).expose_provenance();
        // SAFETY: the record is never freed.
        unsafe { cpu::set_gs_base(record.this) };
    }
}

/// Raises and lowers the guard of whichever kernel thread it runs on. An injected call between two
/// instructions of a sequence would raise the guard of another one.
fn guard_sections() {
    until(|_| {
        for _ in 0..200 {
            // SAFETY: each carrier has set its record, which is never freed. While the guard is up,
            // no call is injected.
            unsafe {
                cpu::gs_inc32::<GUARD>();
                let here = cpu::gs_word::<0>().cast::<Guarded>();
                assert_eq!((*here).this, here.addr());
                assert_eq!((*here).guard, 1, "the guard of another kernel thread was raised");
                assert_eq!(cpu::gs_base(), here.addr());
                assert!(cpu::gs_dec32::<GUARD>());
            }
        }
    });
}

extern "C" fn wander_between_records() {
    target().begun.fetch_add(1, Relaxed);
    harness::pause();
    MASKED.store(false, Release);
}

#[test]
fn guard_is_that_of_the_present_kernel_thread() {
    needs_blocks!();
    again::alone("guard_is_that_of_the_present_kernel_thread", || {
        harness::ON_CARRIER.store(begin_carrier as *mut (), Release);
        under_fire(wander_between_records, guard_sections);
    });
}

type Probe = fn(&mut ucontext_t) -> Result<(), Refusal>;
static PROBE: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
static REFUSED: std::sync::Mutex<Option<Result<(), Refusal>>> = std::sync::Mutex::new(None);
static RAN: AtomicU64 = AtomicU64::new(0);

extern "C" fn ran() {
    RAN.fetch_add(1, Relaxed);
}

extern "C" fn on_probe(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: a function of this type; the kernel's context, to which no other reference exists.
    unsafe {
        let probe = std::mem::transmute::<*mut (), Probe>(PROBE.load(Acquire));
        *REFUSED.lock().expect("no panic") = Some(probe(&mut *context.cast::<ucontext_t>()));
    }
}

/// Runs `probe` in a handler. Returns its result and the number of calls that have run.
fn probe(probe: Probe, flags: c_int) -> (Result<(), Refusal>, u64) {
    let _alternate = overflow::alt_stack_for_this_thread().expect("a signal stack");
    handle(on_probe, flags);
    PROBE.store(probe as *mut (), Release);
    // SAFETY: sends a handled signal to this thread.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
    let answer = REFUSED.lock().expect("no panic").take();
    (answer.expect("handled"), RAN.load(Relaxed))
}

/// Injects with a stack that has `room` bytes below SP.
fn attempt(context: &mut ucontext_t, room: usize) -> Result<(), Refusal> {
    let low = (context.uc_mcontext.sp as usize).wrapping_sub(room);
    // SAFETY: the handler's context. Test threads have far more stack than any `room` here.
    unsafe { inject(context, ran, low) }
}

#[test]
fn unsuitable_interrupted_states_are_refused() {
    const PLENTY: usize = 64 << 10;
    again::alone("unsuitable_interrupted_states_are_refused", || {
        let on_stack = libc::SA_ONSTACK;
        let answer = probe(|context| attempt(context, PLENTY), on_stack);
        assert_eq!(answer, (Err(Refusal::NotPrepared), 0));
        inject::prepare();
        let answer = probe(|context| attempt(context, 16usize.wrapping_neg()), on_stack);
        assert_eq!(answer, (Err(Refusal::NotOnThisStack), 0));
        let answer = probe(|context| attempt(context, 6 << 10), on_stack);
        assert_eq!(answer, (Err(Refusal::NotEnoughRoom), 0));
        let misaligned = |context: &mut ucontext_t| {
            context.uc_mcontext.sp += 8;
            let answer = attempt(context, PLENTY);
            context.uc_mcontext.sp -= 8;
            answer
        };
        assert_eq!(probe(misaligned, on_stack), (Err(Refusal::Misaligned), 0));
        let answer = probe(|context| attempt(context, PLENTY), 0);
        assert_eq!(answer, (Err(Refusal::HandlerOnThisStack), 0));
        let answer = probe(|context| attempt(context, room_needed()), on_stack);
        assert_eq!(answer, (Ok(()), 1), "with the required room the call runs");
        let twice = |context: &mut ucontext_t| {
            attempt(context, PLENTY).expect("the first call is injected");
            attempt(context, PLENTY)
        };
        assert_eq!(probe(twice, on_stack), (Err(Refusal::InTrampoline), 2));
    });
}
