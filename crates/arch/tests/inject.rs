//! Injects calls into interrupted code as often as possible, and checks that no register changes.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

#[path = "inject/backtrace.rs"]
mod backtrace;
mod harness;
#[path = "inject/hold.rs"]
#[rustfmt::skip] // assembly: several short instructions per line
mod hold;
#[path = "inject/other_thread.rs"]
mod other_thread;
#[path = "inject/refused.rs"]
mod refused;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::mpsc;

use harness::{Micro, again};
use kumihimo_arch::cpu::{Context, switch_same};
use kumihimo_arch::inject::{self, Format, inject, interrupted_on, room_needed};
use kumihimo_arch::overflow;
use libc::ucontext_t;

/// Skips the test if handlers do not receive the interrupted context itself.
macro_rules! needs_context {
    () => {
        if $crate::again::thread_sanitizer() {
            return $crate::again::skip(
                "ThreadSanitizer calls handlers later, with a copy of the context",
            );
        }
    };
}
use needs_context;

/// Number of calls that the large tests inject.
const CALLS: u64 = 20_000;

/// One thread that receives signals. Its handler and upcalls find it through [`FIRE`].
struct Fire {
    stack: Range<usize>,
    upcall: extern "C" fn(),
    handled: AtomicU64,
    injected: AtomicU64,
    begun: AtomicU64,
    crooked: AtomicU64,
    over: AtomicBool,
}

impl Fire {
    fn new(stack: Range<usize>, upcall: extern "C" fn()) -> Fire {
        Fire {
            stack,
            upcall,
            handled: AtomicU64::new(0),
            injected: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            crooked: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }
}

thread_local! {
    static FIRE: Cell<*const Fire> = const { Cell::new(std::ptr::null()) };
}

/// Clears AC. The handler starts with the interrupted code's AC flag, which Linux does not clear,
/// and compiled code may access misaligned words.
fn clear_ac() {
    // SAFETY: changes one flag; uses the stack, so no `nostack`.
    unsafe { std::arch::asm!("pushfq", "and dword ptr [rsp], ~0x40000", "popfq") };
}

extern "C" fn on_signal(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    clear_ac();
    let fire = FIRE.get();
    if fire.is_null() {
        return;
    }
    // SAFETY: FIRE points to the live record of this thread; the context is the kernel's.
    unsafe {
        let context = context.cast::<ucontext_t>();
        (*fire).handled.fetch_add(1, Release);
        if interrupted_on(context, (*fire).stack.clone())
            && inject(context, (*fire).upcall, (*fire).stack.start).is_ok()
        {
            (*fire).injected.fetch_add(1, Release);
        }
    }
}

/// Counts a call; `rude` calls it with the state in which it started.
extern "C" fn count(start: &hold::Start) {
    let empty = start.x87[2] & 0xffff == 0xffff
        && start.x87[0] & 0xffff == 0x37f
        && start.x87[1] & 0xffff == 0;
    let clear = start.flags & (1 << 8 | 1 << 10 | 1 << 14 | 1 << 18) == 0;
    // SAFETY: an upcall runs only while its thread's record is alive.
    let fire = unsafe { &*FIRE.get() };
    if !(empty && clear && start.mxcsr == 0x1f80 && start.misaligned == 0) {
        fire.crooked.fetch_add(1, Relaxed);
    }
    fire.begun.fetch_add(1, Relaxed);
}

fn handle(
    signal: c_int,
    handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void),
    flags: c_int,
) {
    // SAFETY: installs a handler of the right type.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | flags;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

fn own_stack() -> Range<usize> {
    // SAFETY: the calls concern the calling thread; the first call initialises the attributes.
    unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attr), 0);
        let (mut low, mut size) = (std::ptr::null_mut(), 0);
        libc::pthread_attr_getstack(&attr, &mut low, &mut size);
        libc::pthread_attr_destroy(&mut attr);
        low as usize..low as usize + size
    }
}

/// A timer that sends SIGUSR1 to the calling kernel thread every 40 us. The signal interrupts user
/// code even on a single core.
struct Timer(libc::timer_t);

impl Timer {
    fn start() -> Timer {
        // SAFETY: the structs are initialised as timer_create(2) requires.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGUSR1;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = std::mem::zeroed();
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0);
            let period = libc::timespec { tv_sec: 0, tv_nsec: 40_000 };
            let times = libc::itimerspec { it_interval: period, it_value: period };
            assert_eq!(libc::timer_settime(timer, 0, &times, std::ptr::null_mut()), 0);
            Timer(timer)
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: created by `start`, deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Runs `work` on a new thread that gets signals from a timer and from another thread. Each signal
/// injects `upcall` if possible.
fn under_fire(upcall: extern "C" fn(), work: impl FnOnce(&Fire) + Send) {
    inject::prepare();
    under_fire_as_prepared(upcall, work);
}

fn under_fire_as_prepared(upcall: extern "C" fn(), work: impl FnOnce(&Fire) + Send) {
    handle(libc::SIGUSR1, on_signal, libc::SA_ONSTACK);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let interrupted = scope.spawn(move || {
            let _alt = overflow::alt_stack_for_this_thread().expect("an alternate stack");
            let fire = Fire::new(own_stack(), upcall);
            FIRE.set(&fire);
            let (done, finished) = mpsc::channel::<()>();
            // SAFETY: pthread_self has no preconditions.
            sender
                .send((&raw const fire as usize, unsafe { libc::pthread_self() }, done))
                .expect("the receiver is alive");
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _timer = Timer::start();
                work(&fire);
            }));
            fire.over.store(true, Release);
            // Before both threads end, the other thread has released the record, and the last
            // signal has arrived.
            let _ = finished.recv();
            FIRE.set(std::ptr::null());
            if let Err(panic) = outcome {
                std::panic::resume_unwind(panic);
            }
            assert_eq!(
                fire.begun.load(Relaxed),
                fire.injected.load(Relaxed),
                "every injected call ran"
            );
            assert_eq!(fire.crooked.load(Relaxed), 0, "upcalls with a wrong initial state");
        });
        let (fire, thread, _done) =
            receiver.recv().expect("the interrupted thread sends its record");
        // SAFETY: the interrupted thread keeps the record until `_done` is dropped.
        let fire = unsafe { &*(fire as *const Fire) };
        let mut seed = 1u64;
        while !fire.over.load(Acquire) {
            // Sends one signal at a time, because otherwise the thread would only handle signals.
            // Then it lets the thread run for a random time.
            let before = fire.handled.load(Acquire);
            // SAFETY: the thread is alive.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            while fire.handled.load(Acquire) == before && !fire.over.load(Acquire) {
                std::thread::yield_now();
            }
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            for _ in 0..seed >> 54 {
                std::hint::spin_loop();
            }
        }
        drop(_done);
        interrupted.join().expect("the interrupted thread does not panic");
    });
}

/// Returns zeros, as many words as the register file has.
fn zeroes<const N: usize>() -> [u64; N] {
    [0; N]
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

const SPINS: u64 = 20_000;

/// Repeats `round` until `calls` further calls were injected.
fn until(fire: &Fire, calls: u64, mut round: impl FnMut(u64)) {
    let end = fire.injected.load(Relaxed) + calls;
    let mut number = 0;
    while fire.injected.load(Relaxed) < end {
        number += 1;
        round(number);
    }
}

fn vectors(
    fire: &Fire,
    calls: u64,
    hold: unsafe extern "C" fn(*const hold::Vectors, *mut hold::Vectors, u64),
    row: usize,
) {
    until(fire, calls, |n| {
        let (values, mut out) = (words(n), zeroes());
        // SAFETY: both arrays are complete, and the caller has checked that the processor has these
        // registers.
        unsafe { hold(&values, &mut out, SPINS) };
        for i in 0..32 * 8 {
            let held = i % 8 < row && (row == 8 || i / 8 < 16);
            assert_eq!(
                out[i],
                if held { values[i] } else { 0 },
                "register {} word {}",
                i / 8,
                i % 8
            );
        }
        if row == 8 {
            assert_eq!(out[256..], values[256..], "mask registers");
        }
    });
}

fn whole_numbers(fire: &Fire, calls: u64) {
    until(fire, calls, |n| {
        let (values, mut out) = (words(n), zeroes());
        // SAFETY: both arrays are complete.
        unsafe { hold::general(&values, &mut out, SPINS) };
        assert_eq!(out, values);
    });
    until(fire, calls, |n| {
        // SAFETY: a leaf that uses only its red zone.
        assert_eq!(unsafe { hold::red_zone(n << 32, SPINS) }, 0, "the red zone")
    });
    until(fire, calls, |n| {
        // Varies and mixes CF PF AF ZF SF DF OF AC ID; IF and the fixed bit are always set.
        let value = (words::<1>(n)[0] & 0x24_0cd5) | 0x202;
        // SAFETY: no misaligned access happens while AC is set.
        assert_eq!(unsafe { hold::flags(value, SPINS) }, value);
    });
    let (a, b) = (words::<4096>(3), words::<4096>(5));
    let mut expected = [0; 4096];
    let mut carry = true;
    for i in 0..4096 {
        let (sum, first) = a[i].overflowing_add(b[i]);
        let (sum, second) = sum.overflowing_add(u64::from(carry));
        (expected[i], carry) = (sum, first | second);
    }
    let mut sum = [0; 4096];
    until(fire, calls, |_| {
        sum.fill(0);
        // SAFETY: three arrays of 4096 words.
        let last = unsafe { hold::add(sum.as_mut_ptr(), a.as_ptr(), b.as_ptr(), 4096) };
        assert_eq!(last, u64::from(carry));
        assert!(sum == expected, "a carry was lost");
    });
    let from: Vec<u8> = (0..32 << 10).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut to = vec![0; from.len()];
    until(fire, calls, |n| {
        let backwards = n % 2 == 0;
        hold::fill(&mut to, n as u8, backwards);
        assert!(to.iter().all(|&b| b == n as u8), "rep stosb");
        hold::copy(&mut to, &from, backwards);
        assert!(to == from, "rep movsb");
    });
}

fn floating_point(fire: &Fire, calls: u64) {
    until(fire, calls, |n| {
        let mut values = hold::X87 {
            stack: [[0; 16]; 8],
            control: [0x37f, 0x77f, 0xb7f, 0xe7f][n as usize % 4],
            status: 0,
        };
        for (i, word) in words::<8>(n).iter().enumerate() {
            // Normal numbers: the integer bit is set, and the exponent is neither 0 nor all ones.
            values.stack[i][..8].copy_from_slice(&(word | 1 << 63).to_le_bytes());
            values.stack[i][8..10].copy_from_slice(&(1 + (word % 0x7ffe) as u16).to_le_bytes());
        }
        let mut out = hold::X87 { stack: [[0; 16]; 8], control: 0, status: 0xffff };
        // SAFETY: both arrays are complete; the x87 stack is empty before and after.
        unsafe { hold::x87(&values, &mut out, SPINS) };
        assert_eq!(out, values);
    });
    until(fire, calls, |n| {
        let (values, mut out) = (words(n), zeroes());
        // SAFETY: both arrays are complete; the function ends with EMMS.
        unsafe { hold::mmx(&values, &mut out, SPINS) };
        assert_eq!(out, values);
    });
    until(fire, calls, |n| {
        let value = 0x1f80 | (n as u32 & 3) << 13 | (n as u32 >> 2 & 1) << 15 | (n as u32 & 0x3f);
        // SAFETY: all exceptions are masked, and the old value is restored.
        assert_eq!(unsafe { hold::mxcsr(value, SPINS) }, value);
    });
    vectors(fire, calls, hold::xmm, 2);
}

/// Runs ordinary code of the C library and the compiler. The upcall uses neither, so it may
/// interrupt any point, including malloc.
fn everyday(fire: &Fire, calls: u64) {
    let once = || {
        let mut kept: Vec<Vec<u8>> = Vec::new();
        let mut sum = 0.0f64;
        for i in 0..200usize {
            let mut piece = vec![i as u8; 1 + i * 37 % 3000];
            piece.extend_from_slice(format!("{:.7} {}", (i as f64).sqrt() / 3.0, i * i).as_bytes());
            sum += piece.iter().map(|&b| f64::from(b).sin()).sum::<f64>();
            if i % 3 == 0 { kept.push(piece.clone()) } else { kept.truncate(i % 17) }
        }
        kept.sort();
        (sum.to_bits(), kept.concat())
    };
    let expected = once();
    until(fire, calls, |_| assert!(black_box(once()) == expected, "ordinary code"));
}

fn everything(fire: &Fire) {
    const KINDS: u64 = 12;
    let calls = CALLS / KINDS + 1;
    whole_numbers(fire, calls);
    floating_point(fire, calls);
    if is_x86_feature_detected!("avx") {
        vectors(fire, calls, hold::ymm, 4);
    }
    if wide() == 2 {
        vectors(fire, calls, hold::zmm, 8);
    }
    everyday(fire, calls);
    until(fire, CALLS.saturating_sub(fire.injected.load(Relaxed)), |_| {});
}

fn wide() -> u32 {
    let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    if avx512 { 2 } else { u32::from(is_x86_feature_detected!("avx")) }
}

#[test]
fn injected_calls_preserve_all_registers() {
    needs_context!();
    // In a process of its own, because `WIDTH` and the format are global to the process.
    again::alone("injected_calls_preserve_all_registers", || {
        hold::WIDTH.store(wide(), Relaxed);
        println!("{:?}, {} bytes of room", inject::prepare(), room_needed());
        under_fire(hold::rude, everything);
    });
}

#[test]
fn injected_calls_preserve_all_registers_in_the_standard_format() {
    needs_context!();
    const NAME: &str = "injected_calls_preserve_all_registers_in_the_standard_format";
    if inject::prepare() == Format::Legacy {
        return again::skip("no XSAVE");
    }
    again::alone(NAME, || {
        // SAFETY: XSAVE is available, and no call was injected yet.
        unsafe { inject::prepare_as(Format::Standard) };
        hold::WIDTH.store(wide(), Relaxed);
        under_fire_as_prepared(hold::rude, everything);
    });
}

#[test]
fn injected_calls_preserve_all_but_avx_in_the_legacy_format() {
    needs_context!();
    again::alone("injected_calls_preserve_all_but_avx_in_the_legacy_format", || {
        // SAFETY: FXSAVE is part of x86_64. It does not save the AVX registers, which the C library
        // uses and `rude` does not change with WIDTH = 0.
        unsafe { inject::prepare_as(Format::Legacy) };
        under_fire_as_prepared(hold::rude, |fire| {
            whole_numbers(fire, CALLS / 10);
            floating_point(fire, CALLS / 10);
            everyday(fire, CALLS / 10);
        });
    });
}

struct Sides {
    interrupted: Context,
    other: Context,
    visits: u64,
    busy: bool,
}

thread_local! {
    static SIDES: Cell<*mut Sides> = const { Cell::new(std::ptr::null_mut()) };
}

extern "C" fn other_side(argument: *mut u8) -> ! {
    let sides = argument.cast::<Sides>();
    loop {
        // Uses the vector registers and the stack of this side.
        let mut text = [0u8; 256];
        text.fill(black_box(0xee));
        // SAFETY: the test's record, used by one kernel thread only.
        unsafe {
            (*sides).visits += u64::from(text.iter().all(|&b| b == 0xee));
            switch_same(&raw mut (*sides).other, (*sides).interrupted);
        }
    }
}

extern "C" fn visit() {
    let sides = SIDES.get();
    // SAFETY: an upcall runs only while FIRE's record is alive, and SIDES is null or points to a
    // live record. A call injected into `visit` itself does not switch, because the other side is
    // running.
    unsafe {
        (*FIRE.get()).begun.fetch_add(1, Relaxed);
        if sides.is_null() || (&raw mut (*sides).busy).replace(true) {
            return;
        }
        let other = (&raw const (*sides).other).read();
        switch_same(&raw mut (*sides).interrupted, other);
        (&raw mut (*sides).busy).write_volatile(false);
    }
}

#[test]
fn upcall_may_switch_stacks() {
    needs_context!();
    under_fire(visit, |fire| {
        let mut stack = vec![0u128; 4096];
        let mut sides =
            Sides { interrupted: Context::NULL, other: Context::NULL, visits: 0, busy: false };
        let record = &raw mut sides;
        // SAFETY: a 16-aligned stack of 64 KiB; upcalls switch to it only while SIDES is set.
        unsafe {
            (*record).other =
                Context::prepare(stack.as_mut_ptr().add(4096).cast(), other_side, record.cast())
        };
        SIDES.set(record);
        whole_numbers(fire, 500);
        floating_point(fire, 500);
        everyday(fire, 500);
        SIDES.set(std::ptr::null_mut());
        // SAFETY: no upcall uses the record any more.
        let visits = unsafe { (*record).visits };
        assert!(visits >= 2000, "most calls went to the other side and came back");
    });
}
