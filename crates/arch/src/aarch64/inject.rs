//! Injection of a call from a signal handler into the code that the signal interrupted.
//!
//! A handler must not switch contexts: it runs on the kernel thread's alternate stack, inside a
//! signal frame that belongs to this kernel thread. It therefore only changes the saved registers.
//! When it returns, the interrupted code calls an *upcall* before it continues, as if it had called
//! it between two instructions. The signal is over by then: the upcall is ordinary code on the
//! interrupted stack. It may switch to other microprocesses and return on another kernel thread.
//!
//! ```text
//! interrupted SP -> |                                               |
//!            x29 -> | x29, PC            frame-pointer walkers go on |
//!             SP -> | copy of the signal frame, with all registers  |
//!                   | the upcall's frames                           |
//! ```
//! No instruction of this architecture loads the program counter and leaves all other registers as
//! they were. So the interrupted code continues by rt_sigreturn(2) from a copy of the signal frame,
//! which the handler makes on the interrupted stack. The kernel restores from it the general
//! registers, NZCV, the FP registers, FPSR, FPCR, and SVE state in whatever length the frame's
//! records have.
//!
//! A signal frame also has the signal mask and the alternate stack, which belong to the kernel
//! thread. The code after the upcall blocks all signals and writes those of the present kernel
//! thread into the copy.
//!
//! The upcall starts in the state that the ABI requires at a call: FPCR is 0, and BTYPE is clear.
//! There is no red zone (AAPCS64, 6.4.5.1).
//!
//! The thread pointer is not touched: it belongs to the microprocess, and the switch sets it.
//!
//! The two instructions to which the upcall's caller returns, and SP there, are those of the vDSO's
//! trampoline. libgcc and gdb recognise both, and unwind through the copy as through any signal.
//!
//! Sources: AAPCS64; Linux, arch/arm64/kernel/signal.c (`restore_sigframe`) and vdso/sigreturn.S;
//! libgcc, config/aarch64/linux-unwind.h.

use core::arch::global_asm;
use core::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::ucontext_t;

use super::signal_frame::{INFO, MASK, STACK, walk};
pub use crate::glibc::refusal::Refusal;
use crate::signal_mask::NEVER_BLOCKED;

/// Bytes for the upcall's own frames; the same amount as [`stack::minimum`](crate::stack::minimum)
/// reserves for ordinary frames.
const UPCALL_ROOM: usize = 6 << 10;
/// Bytes of a frame record: x29 and PC.
const RECORD: usize = 16;
/// PSTATE.BTYPE: the kind of branch that led to the interrupted instruction.
const BTYPE: u64 = 3 << 10;

/// Bytes of the largest signal frame; 0 until [`prepare`] has run.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

// sigreturn enters at `kumihimo_inject_enter` with x0 = SP = the copied frame, x1 = upcall, x29 =
// the frame record, x30 = `kumihimo_inject_return`.
//
// All instructions from the end of the upcall on run with all signals blocked, but for those before
// the first system call. No handler then finds an old mask or an old alternate stack in the copy.
// rt_sigreturn ignores errors of sigaltstack(2).
//
// The instruction before the return address has no call frame information: unwinders look an
// address up by the instruction before it, and must find none to try the form of a signal frame.
global_asm!(
    ".pushsection .text.kumihimo_inject, \"ax\", %progbits",
    ".p2align 4",
    ".globl kumihimo_inject_enter",
    ".hidden kumihimo_inject_enter",
    ".type kumihimo_inject_enter, %function",
    "kumihimo_inject_enter:",
    ".cfi_startproc",
    "hint #34", // bti c
    "stp x29, x30, [sp, #-32]!",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset x29, -32",
    ".cfi_offset x30, -24",
    "str x19, [sp, #16]",
    ".cfi_offset x19, -16",
    "mov x29, sp",
    "mov x19, x0",
    "blr x1",
    // rt_sigprocmask(SIG_SETMASK, &all, &copy.uc_sigmask, 8)
    "mov x0, #2",
    "adr x1, 2f",
    "add x2, x19, #{mask}",
    "mov x3, #8",
    "mov x8, #135",
    "svc #0",
    // sigaltstack(NULL, &copy.uc_stack)
    "mov x0, #0",
    "add x1, x19, #{stack}",
    "mov x8, #132",
    "svc #0",
    "ldr x19, [sp, #16]",
    "ldp x29, x30, [sp], #32",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore x19",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "ret",
    ".cfi_endproc",
    ".size kumihimo_inject_enter, . - kumihimo_inject_enter",
    ".p2align 3",
    "2:",
    ".quad {all}",
    "nop",
    ".globl kumihimo_inject_return",
    ".hidden kumihimo_inject_return",
    ".type kumihimo_inject_return, %function",
    "kumihimo_inject_return:",
    "mov x8, #139", // rt_sigreturn
    "svc #0",
    ".size kumihimo_inject_return, . - kumihimo_inject_return",
    ".globl kumihimo_inject_end",
    ".hidden kumihimo_inject_end",
    "kumihimo_inject_end:",
    ".popsection",
    mask = const INFO + MASK,
    stack = const INFO + STACK,
    all = const !NEVER_BLOCKED,
);

unsafe extern "C" {
    static kumihimo_inject_enter: c_void;
    static kumihimo_inject_return: c_void;
    static kumihimo_inject_end: c_void;
}

fn address(of: *const c_void) -> usize {
    of.expose_provenance()
}

/// Reads the size of the largest signal frame. Must run once before the first [`inject`], outside
/// signal handlers. Does not block.
pub fn prepare() {
    LARGEST.store(crate::cpu::extended_state_bytes(), Ordering::Release);
}

/// Returns the bytes that must be free below the interrupted SP at most: the frame record, the
/// signal frame and 6 KiB for the upcall. Async-signal-safe.
pub fn room_needed() -> usize {
    RECORD + LARGEST.load(Ordering::Relaxed) + UPCALL_ROOM
}

/// Returns whether the interrupted code's SP lies in `stack`. Async-signal-safe.
///
/// # Safety
/// `context` is the context that the kernel passed to the running signal handler.
pub unsafe fn interrupted_on(context: *const ucontext_t, stack: Range<usize>) -> bool {
    // SAFETY: upheld by the caller.
    stack.contains(&(unsafe { (*context).uc_mcontext.sp } as usize))
}

/// Makes the interrupted code call `upcall` before it continues, as if it had called it between two
/// instructions.
///
/// Afterwards all general registers, the flags and the FP and SVE state are unchanged, even if the
/// code continues on another kernel thread. The thread pointer is neither saved nor restored.
/// `upcall` starts as any function does, with the FPCR of a new thread. In a debugger or backtrace,
/// the interrupted function appears below a signal frame.
///
/// Async-signal-safe, does not block; touches no thread-local variable and not errno.
///
/// # Errors
/// Returns a [`Refusal`] and leaves the context unchanged.
///
/// # Safety
/// - `context` is the context that the kernel passed to the running signal handler, and the handler
///   then returns.
/// - `stack_low` is the lowest usable address of the stack that contains the interrupted SP (see
///   [`interrupted_on`]), and the memory below SP is unused.
/// - The interrupted code tolerates the call *at that point*: it is not within the runtime and
///   holds no lock that `upcall` needs. If `upcall` switches, the code caches nothing that belongs
///   to the kernel thread.
/// - `upcall` returns normally: nothing unwinds through the trampoline. A panic aborts, because
///   `upcall` is `extern "C"`.
pub unsafe fn inject(
    context: *mut ucontext_t,
    upcall: extern "C" fn(),
    stack_low: usize,
) -> Result<(), Refusal> {
    if LARGEST.load(Ordering::Acquire) == 0 {
        return Err(Refusal::NotPrepared);
    }
    let enter = address(&raw const kumihimo_inject_enter);
    // SAFETY: upheld by the caller.
    let (sp, pc) = unsafe {
        let registers = &(*context).uc_mcontext;
        (registers.sp as usize, registers.pc as usize)
    };
    let room = sp.checked_sub(stack_low).ok_or(Refusal::NotOnThisStack)?;
    // This check also bounds a burst of signals: otherwise each could add a frame before the first
    // upcall starts.
    if (enter..address(&raw const kumihimo_inject_end)).contains(&pc) {
        return Err(Refusal::InTrampoline);
    }
    if !sp.is_multiple_of(16) {
        return Err(Refusal::Misaligned);
    }
    if (stack_low..sp).contains(&context.addr()) {
        return Err(Refusal::HandlerOnThisStack);
    }
    // SAFETY: upheld by the caller.
    let found = unsafe { walk(context) }?;
    if room < RECORD + found.bytes() + UPCALL_ROOM {
        return Err(Refusal::NotEnoughRoom);
    }
    let record = std::ptr::with_exposed_provenance_mut::<u64>(sp - RECORD);
    let frame = record.cast::<u8>().wrapping_sub(found.bytes());
    // SAFETY: the room was checked, and SP, hence the record and the frame are 16-aligned. The
    // caller grants the memory below SP, and the signal frame is elsewhere.
    unsafe {
        found.copy(context, frame);
        let registers = &mut (*context).uc_mcontext;
        record.write(registers.regs[29]);
        record.add(1).write(registers.pc);
        registers.regs[0] = frame.expose_provenance() as u64;
        registers.regs[1] = upcall as *const () as u64;
        registers.regs[29] = record.expose_provenance() as u64;
        registers.regs[30] = address(&raw const kumihimo_inject_return) as u64;
        registers.sp = frame.addr() as u64;
        registers.pc = enter as u64;
        registers.pstate &= !BTYPE;
        found.set_fpcr(context, 0);
    }
    Ok(())
}
