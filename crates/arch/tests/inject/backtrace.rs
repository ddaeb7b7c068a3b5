//! Backtraces within an injected call.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;

use super::{FIRE, again, under_fire, until};

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut c_void, *mut Trace) -> c_int,
        trace: *mut Trace,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_FindEnclosingFunction(pc: *const c_void) -> usize;
}

#[repr(C)]
struct Trace {
    functions: [usize; 64],
    frames: usize,
}

extern "C" fn note(frame: *mut c_void, trace: *mut Trace) -> c_int {
    // SAFETY: the unwinder's frame and the caller's trace.
    unsafe {
        let trace = &mut *trace;
        if trace.frames == trace.functions.len() {
            return 4; // _URC_END_OF_STACK
        }
        trace.functions[trace.frames] =
            _Unwind_FindEnclosingFunction((_Unwind_GetIP(frame).wrapping_sub(1)) as *const c_void);
        trace.frames += 1;
    }
    0
}

thread_local! {
    static LOOKING: Cell<bool> = const { Cell::new(false) };
    static SEEN: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Takes a backtrace. Counts in SEEN the backtraces, and those in which `outer_here` calls
/// `interrupted_here`.
extern "C" fn look() {
    // SAFETY: an upcall runs only while the record is alive.
    unsafe { (*FIRE.get()).begun.fetch_add(1, Relaxed) };
    if !LOOKING.replace(false) {
        return;
    }
    let mut trace = Trace { functions: [0; 64], frames: 0 };
    // SAFETY: LOOKING is set only in code that holds no lock.
    unsafe { _Unwind_Backtrace(note, &mut trace) };
    let inner = interrupted_here as *const () as usize;
    let outer = outer_here as *const () as usize;
    let whole = trace.functions[..trace.frames].windows(2).any(|pair| pair == [inner, outer])
        && trace.frames > 6;
    let (looked, saw) = SEEN.get();
    SEEN.set((looked + 1, saw + u64::from(whole)));
    LOOKING.set(true);
}

#[inline(never)]
extern "C" fn interrupted_here(spins: u64) -> u64 {
    // SAFETY: counts a register down to zero.
    unsafe {
        std::arch::asm!("2:", "dec {}", "jnz 2b", inout(reg) spins => _, options(nomem, nostack))
    };
    spins
}

#[inline(never)]
extern "C" fn outer_here(spins: u64) -> u64 {
    LOOKING.set(true);
    let result = interrupted_here(black_box(spins));
    LOOKING.set(false);
    black_box(result)
}

#[test]
fn backtrace_shows_the_interrupted_function() {
    if again::sanitizer() {
        return again::skip("a sanitizer's stubs are in the backtrace");
    }
    under_fire(look, |fire| {
        // The first backtrace loads and sorts tables. An injected call must not find this work half
        // done.
        drop(black_box(std::backtrace::Backtrace::force_capture()));
        until(fire, 500, |_| {
            black_box(outer_here(1_000_000));
        });
        let (looked, saw) = SEEN.get();
        // A few signals arrive between LOOKING and the call, in `outer_here` itself.
        assert!(
            looked > 300 && saw >= looked - looked / 10,
            "looked {looked} times, saw it {saw} times"
        );
    });
}
