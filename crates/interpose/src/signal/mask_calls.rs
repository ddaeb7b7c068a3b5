//! The functions that change a mask: pthread_sigmask(3), siglongjmp(3); sigpending(2).

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use kumihimo_runtime::signals::is_on_runtimes_thread;
use libc::sigset_t;

use crate::failed;
use crate::real::libc;
use crate::signal::mask::{note, of_caller, of_context};
use crate::signal::{handlers, process, section};
use crate::start::phase;
use crate::thread::record::{self, own_signals};

/// Runs `f` with another mask in the calling microprocess.
pub(super) fn with<R>(mask: u64, f: impl FnOnce() -> R) -> R {
    let own = own_signals();
    let before = own.mask.load(Ordering::SeqCst);
    process::note_open(!mask);
    note(own, mask);
    process::adopt(own, mask);
    let done = f();
    note(own, before);
    done
}

/// Notes the mask of the calling thread after a function of the C library has changed it.
fn changed() {
    let own = own_signals();
    let mask = of_caller();
    own.mask.store(mask, Ordering::SeqCst);
    if record::is_created() {
        process::note_open(!mask);
    } else {
        process::note_mask_of_kernel_thread(mask);
    }
    process::adopt(own, mask);
    section::look(own);
}

/// Replaces pthread_sigmask(3), as `arch` does.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_sigmask(
    how: c_int,
    set: *const sigset_t,
    before: *mut sigset_t,
) -> c_int {
    // SAFETY: the caller's promise. `libc::pthread_sigmask` is the definition of `arch`.
    let done = unsafe { libc::pthread_sigmask(how, set, before) };
    if done == 0 && !set.is_null() && phase::has_started() {
        changed();
    }
    done
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn kumi_interpose_sigprocmask(
    how: c_int,
    set: *const sigset_t,
    before: *mut sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { kumi_interpose_pthread_sigmask(how, set, before) } {
        0 => 0,
        error => failed(error),
    }
}

/// Replaces sigaltstack(2), as `arch` does.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_sigaltstack(
    new: *const libc::stack_t,
    before: *mut libc::stack_t,
) -> c_int {
    // SAFETY: the caller's promise. The definition of `arch`.
    let done = unsafe { libc::sigaltstack(new, before) };
    if done == 0 && !new.is_null() && phase::has_started() {
        handlers::note_stack();
    }
    done
}

/// Replaces sigpending(2): what waits in the kernel, and here.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_sigpending(to: *mut sigset_t) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::sigpending(to) };
    if done == 0 && phase::has_started() {
        let waiting = (own_signals().queue.pending() | process::held()) & of_caller();
        // SAFETY: written by the call. The set begins with the kernel's word.
        unsafe { *to.cast::<u64>() |= waiting };
    }
    done
}

/// What sigsetjmp(3) stores; <setjmp.h> of glibc.
#[repr(C)]
pub(super) struct Jump {
    registers: [u64; 8],
    has_mask: c_int,
    mask: u64,
}

/// Runs before siglongjmp(3) and its like, which set the mask by the system call. So the runtime
/// has it, too.
unsafe extern "C" fn before_jump(to: *const Jump) {
    let own = own_signals();
    // It may leave a handler.
    own.is_handling.set(false);
    if !record::is_created() || !is_on_runtimes_thread() {
        return;
    }
    // A jump out of a handler that has interrupted a section leaves no section.
    // SAFETY: the caller's promise.
    if unsafe { (*to).has_mask } != 0 {
        // SAFETY: as above.
        note(own, unsafe { (*to).mask });
    }
}

macro_rules! jump {
    ($($name:ident $real:literal)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name(_to: *const Jump, _value: c_int) -> ! {
                std::arch::naked_asm!(
                    "push rdi",
                    "push rsi",
                    "sub rsp, 8",
                    "call {before}",
                    "add rsp, 8",
                    "pop rsi",
                    "pop rdi",
                    concat!("jmp ", $real),
                    before = sym before_jump,
                )
            }
        )*
    };
}

jump! {
    kumi_interpose_longjmp "__wrap_longjmp"
    kumi_interpose__longjmp "__wrap__longjmp"
    kumi_interpose_siglongjmp "__wrap_siglongjmp"
    kumi_interpose___longjmp_chk "__wrap___longjmp_chk"
}

/// Runs before setcontext(3) and swapcontext(3), which set the mask by the system call; the latter
/// stores the one before, so it must not be changed here.
unsafe extern "C" fn before_context(to: *const libc::ucontext_t) {
    if record::is_created() && is_on_runtimes_thread() && !to.is_null() {
        // SAFETY: the caller's promise.
        own_signals().mask.store(unsafe { of_context(to) }, Ordering::SeqCst);
    }
}

/// Replaces setcontext(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn kumi_interpose_setcontext(_to: *const libc::ucontext_t) -> c_int {
    std::arch::naked_asm!(
        "push rdi",
        "call {before}",
        "pop rdi",
        "jmp __wrap_setcontext",
        before = sym before_context,
    )
}

/// Replaces swapcontext(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn kumi_interpose_swapcontext(
    _from: *mut libc::ucontext_t,
    _to: *const libc::ucontext_t,
) -> c_int {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdi, rsi",
        "call {before}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp __wrap_swapcontext",
        before = sym before_context,
    )
}
