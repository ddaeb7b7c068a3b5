//! Reasons for not injecting a call. Each thread sends the signal to itself, so the interrupted
//! state is known.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use kumihimo_arch::inject::{self, Refusal, inject, room_needed};
use kumihimo_arch::overflow;
use libc::ucontext_t;

use super::{again, handle, needs_context};

/// Function that `on_probe` runs with the context.
type Probe = fn(&mut ucontext_t) -> Result<(), Refusal>;

thread_local! {
    static PROBE: Cell<Option<Probe>> = const { Cell::new(None) };
    static ANSWER: Cell<Option<Result<(), Refusal>>> = const { Cell::new(None) };
    static UNCHANGED: Cell<bool> = const { Cell::new(false) };
    static RAN: Cell<u64> = const { Cell::new(0) };
    static LOW_AND_HIGH: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

extern "C" fn on_probe(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's context, to which no other reference exists.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    let before = context.uc_mcontext.gregs;
    ANSWER.set(PROBE.get().map(|probe| probe(context)));
    UNCHANGED.set(before == context.uc_mcontext.gregs);
}

extern "C" fn ran() {
    RAN.set(RAN.get() + 1);
}

/// Runs `probe` in a handler of `signal`. Returns its result, and whether the context is unchanged.
fn probe(signal: c_int, probe: Probe) -> (Result<(), Refusal>, bool) {
    let _alt = overflow::alt_stack_for_this_thread().expect("an alternate stack");
    PROBE.set(Some(probe));
    // SAFETY: sends a handled signal to this thread.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
    (ANSWER.take().expect("handled"), UNCHANGED.get())
}

fn rsp(context: &ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize
}

/// Injects with a stack that has `room` bytes below RSP.
fn attempt(context: &mut ucontext_t, room: usize) -> Result<(), Refusal> {
    let low = rsp(context).wrapping_sub(room);
    // SAFETY: the handler's context. Test threads have far more stack than any `room` used by the
    // tests, and the memory below the red zone is unused.
    unsafe { inject(context, ran, low) }
}

const PLENTY: usize = 64 << 10;

#[test]
fn call_is_refused_with_too_little_room() {
    needs_context!();
    inject::prepare();
    let signal = libc::SIGRTMIN() + 3;
    handle(signal, on_probe, libc::SA_ONSTACK);
    let answer = probe(signal, |context| attempt(context, room_needed() - 1));
    assert_eq!((answer, RAN.get()), ((Err(Refusal::NotEnoughRoom), true), 0));
    assert!(Refusal::NotEnoughRoom.to_string().contains("room"));

    // With exactly the required room, the call runs and stays within it.
    let answer = probe(signal, |context| {
        let (low, high) = (rsp(context) - room_needed(), rsp(context) - 128);
        LOW_AND_HIGH.set((low, high));
        for address in low - 8192..high {
            // SAFETY: unused stack of this thread; the handler runs on another stack.
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
fn unsuitable_interrupted_states_are_refused() {
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

    // The first injection points RIP at the trampoline, so the second one is refused.
    let answer = probe(signal, |context| {
        attempt(context, PLENTY).expect("the first call is injected");
        attempt(context, PLENTY)
    });
    assert_eq!((answer, RAN.get()), ((Err(Refusal::InTrampoline), false), 1));

    handle(signal, on_probe, 0);
    let answer = probe(signal, |context| attempt(context, PLENTY));
    assert_eq!((answer, RAN.get()), ((Err(Refusal::HandlerOnThisStack), true), 1));
}

#[test]
fn call_is_refused_before_prepare() {
    needs_context!();
    again::alone("refused::call_is_refused_before_prepare", || {
        let signal = libc::SIGRTMIN() + 5;
        handle(signal, on_probe, libc::SA_ONSTACK);
        let answer = probe(signal, |context| attempt(context, PLENTY));
        assert_eq!((answer, RAN.get()), ((Err(Refusal::NotPrepared), true), 0));
    });
}
