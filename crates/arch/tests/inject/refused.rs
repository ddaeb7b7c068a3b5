//! When no call is injected. Signals that a thread sends to itself, so that everything is known.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use kumihimo_arch::inject::{self, Refusal, inject, room_needed};
use kumihimo_arch::overflow;
use libc::ucontext_t;

use super::{again, handle, needs_context};

/// What `on_probe` does with the context.
type Probe = fn(&mut ucontext_t) -> Result<(), Refusal>;

thread_local! {
    static PROBE: Cell<Option<Probe>> = const { Cell::new(None) };
    static ANSWER: Cell<Option<Result<(), Refusal>>> = const { Cell::new(None) };
    static UNCHANGED: Cell<bool> = const { Cell::new(false) };
    static RAN: Cell<u64> = const { Cell::new(0) };
    static LOW_AND_HIGH: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

extern "C" fn on_probe(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's context, which nobody else has.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    let before = context.uc_mcontext.gregs;
    ANSWER.set(PROBE.get().map(|probe| probe(context)));
    UNCHANGED.set(before == context.uc_mcontext.gregs);
}

extern "C" fn ran() {
    RAN.set(RAN.get() + 1);
}

/// The answer of `probe` in a handler of `signal`, and whether the context was the same afterwards.
fn probe(signal: c_int, probe: Probe) -> (Result<(), Refusal>, bool) {
    let _alt = overflow::alt_stack_for_this_thread().expect("an alternate stack");
    PROBE.set(Some(probe));
    // SAFETY: sends a signal that is handled to this thread.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
    (ANSWER.take().expect("handled"), UNCHANGED.get())
}

fn rsp(context: &ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize
}

/// With `room` bytes below RSP.
fn attempt(context: &mut ucontext_t, room: usize) -> Result<(), Refusal> {
    let low = rsp(context).wrapping_sub(room);
    // SAFETY: the handler's context; test threads have far more stack than any `room` here, and
    // nothing is below the red zone.
    unsafe { inject(context, ran, low) }
}

const PLENTY: usize = 64 << 10;

#[test]
fn with_too_little_room() {
    needs_context!();
    inject::prepare();
    let signal = libc::SIGRTMIN() + 3;
    handle(signal, on_probe, libc::SA_ONSTACK);
    let answer = probe(signal, |context| attempt(context, room_needed() - 1));
    assert_eq!((answer, RAN.get()), ((Err(Refusal::NotEnoughRoom), true), 0));
    assert!(Refusal::NotEnoughRoom.to_string().contains("room"));

    // With just enough it runs, and keeps to it.
    let answer = probe(signal, |context| {
        let (low, high) = (rsp(context) - room_needed(), rsp(context) - 128);
        LOW_AND_HIGH.set((low, high));
        for address in low - 8192..high {
            // SAFETY: unused stack of this thread; the handler is on another one.
            unsafe { (address as *mut u8).write_volatile(0xa5) };
        }
        attempt(context, room_needed())
    });
    let (low, high) = LOW_AND_HIGH.get();
    // SAFETY: the same bytes, still mapped.
    let touched = (low - 8192..high)
        .find(|&address| unsafe { (address as *const u8).read_volatile() } != 0xa5);
    assert_eq!((answer, RAN.get()), ((Ok(()), false), 1));
    assert!(touched.is_some_and(|address| address >= low), "{touched:x?} is below {low:x}");
}

#[test]
fn elsewhere() {
    needs_context!();
    inject::prepare();
    let signal = libc::SIGRTMIN() + 4;
    handle(signal, on_probe, libc::SA_ONSTACK);
    let answer = probe(signal, |context| attempt(context, 8usize.wrapping_neg()));
    assert_eq!((answer, RAN.get()), ((Err(Refusal::NotOnThisStack), true), 0));

    let answer = probe(signal, |context| {
        context.uc_mcontext.gregs[libc::REG_RSP as usize] += 4;
        let answer = attempt(context, PLENTY);
        context.uc_mcontext.gregs[libc::REG_RSP as usize] -= 4;
        answer
    });
    assert_eq!((answer, RAN.get()), ((Err(Refusal::Misaligned), true), 0));

    // Of two signals on top of each other, the second one interrupts the trampoline.
    let answer = probe(signal, |context| {
        attempt(context, PLENTY).expect("the first");
        attempt(context, PLENTY)
    });
    assert_eq!((answer, RAN.get()), ((Err(Refusal::InTrampoline), false), 1));

    handle(signal, on_probe, 0);
    let answer = probe(signal, |context| attempt(context, PLENTY));
    assert_eq!((answer, RAN.get()), ((Err(Refusal::HandlerOnThisStack), true), 1));
}

#[test]
fn before_it_is_prepared() {
    needs_context!();
    again::alone("refused::before_it_is_prepared", || {
        let signal = libc::SIGRTMIN() + 5;
        handle(signal, on_probe, libc::SA_ONSTACK);
        let answer = probe(signal, |context| attempt(context, PLENTY));
        assert_eq!((answer, RAN.get()), ((Err(Refusal::NotPrepared), true), 0));
    });
}
