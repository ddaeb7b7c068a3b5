//! Injection of a call from a signal handler into the code that the signal interrupted.
//!
//! A handler must not switch contexts: it runs on the kernel thread's alternate stack, inside a
//! signal frame that belongs to this kernel thread. It therefore only changes the saved registers.
//! When it returns, the interrupted code calls an *upcall* before it continues, as if it had called
//! it between two instructions. The signal is over by then: the upcall is ordinary code on the
//! interrupted stack. It may switch to other microprocesses and return on another kernel thread.
//!
//! ```text
//! interrupted RSP ->  |                                            |
//!                     | red zone, 128 bytes      (ABI: untouched)  |
//!                     | RIP                                        |
//!              rbp -> | RBP          frame-pointer walkers go on   |
//!                     | RFLAGS                                     |
//!                     | RAX RBX RCX RDX RSI RDI R8 ... R15         |
//!                     | (to a multiple of 64)                      |
//!              rsp -> | XSAVE area: x87, SSE, AVX, AVX-512, PKRU.. |
//!                     | the upcall's frames                        |
//! ```
//! The handler has all registers in its `ucontext` and writes the general ones to the stack. The
//! kernel's sigreturn continues at the trampoline, which saves the extended state, calls the
//! upcall, and restores everything.
//!
//! The upcall starts in the state that the ABI requires at a call: DF, AC and TF clear, an empty
//! x87 stack, the control words of a new thread (MXCSR 0x1f80, x87 0x37f) and clean upper halves of
//! the vector registers. This holds even if the interrupted code has changed the rounding mode or
//! is in the middle of MMX code; its own state is restored afterwards.
//!
//! FS and GS are not touched. FS belongs to the microprocess, and the switch sets it. GS differs if
//! the upcall returns on another kernel thread. The signal mask also belongs to the kernel thread.
//!
//! Sources: System V ABI for AMD64, 3.2.2 (red zone) and 3.2.1 (registers, direction flag, control
//! words); Intel SDM volume 1, chapter 13 (XSAVE, XSAVEC, XRSTOR; 13.2 enumeration, 13.4 layout of
//! the area), volume 2, CPUID leaf 0DH.

use core::arch::{asm, global_asm};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use libc::ucontext_t;

use super::cpu::cpuid;
pub use crate::glibc::refusal::Refusal;

/// Bytes below RSP that leaf functions may use (System V ABI 3.2.2).
const RED_ZONE: usize = 128;
/// Bytes for the upcall's own frames; the same amount as [`stack::minimum`](crate::stack::minimum)
/// reserves for ordinary frames.
const UPCALL_ROOM: usize = 6 << 10;
/// Sizes of the legacy region and the header of an XSAVE area (SDM 13.4.1, 13.4.2).
const LEGACY: usize = 512;
const HEADER: usize = 64;
/// XCR0 bits of the AMX tiles. They take 8 KiB, for which a small stack has no room, and are rarely
/// used.
const TILES: u64 = 3 << 17;

const CARRY_TO_RUN: u64 = {
    const TF: u64 = 1 << 8;
    const DF: u64 = 1 << 10;
    const NT: u64 = 1 << 14;
    const RF: u64 = 1 << 16;
    const AC: u64 = 1 << 18;
    !(TF | DF | NT | RF | AC)
};

/// The general registers on the interrupted stack, in the order in which the trampoline pops them.
#[repr(C)]
struct Frame {
    r15_to_r8: [u64; 8],
    rdi: u64,
    rsi: u64,
    rdx: u64,
    rcx: u64,
    rbx: u64,
    rax: u64,
    flags: u64,
    rbp: u64,
    rip: u64,
}

const _: () = assert!(size_of::<Frame>() == 17 * 8);

/// The instructions that save the extended state. [`prepare`] selects them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// XSAVEC: only components in use, compacted.
    Compact,
    /// XSAVE: every component at its standard offset.
    Standard,
    /// FXSAVE: x87 and SSE. Sufficient where the kernel does not enable XSAVE, hence not AVX.
    Legacy,
}

/// Where sigreturn continues; 0 until [`prepare`] has run. Stored last with Release and loaded
/// first with Acquire, so a reader that sees a non-zero value also sees the other statics.
static ENTRY: AtomicUsize = AtomicUsize::new(0);
/// The components that the trampoline saves, and the size of their area in bytes.
static MASK: AtomicU64 = AtomicU64::new(0);
static AREA: AtomicUsize = AtomicUsize::new(0);
/// Components that the kernel enables and the trampoline does not save.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn kumihimo_inject_compact();
    fn kumihimo_inject_standard();
    fn kumihimo_inject_legacy();
    fn kumihimo_inject_end();
}

// sigreturn enters with rsp = area (a multiple of 64), rbp = &frame.rbp, rbx = upcall, r12 = mask.
// The handler has cleared the area's header: XSAVE and XSAVEC write only its first fields, and
// XRSTOR requires the rest to be zero (SDM 13.8.1, 13.8.2). The upcall preserves rbx, rbp and r12;
// the code after it relies on nothing else, not even DF or the x87 stack.
//
// The 64-bit forms of the instructions are used because the others truncate the x87 instruction and
// operand pointers to 32 bits.
//
// A pending x87 exception stays pending in the area, since neither XSAVE nor FNINIT waits for it.
//
// Call frame information: from the first instruction to the last `pop`, all saved registers are at
// a fixed distance from rbp, and the CFA is the interrupted RSP. The frame is marked as a signal
// frame: the address belongs to the interrupted instruction itself, not to the one after a call.
//
// `ret 128` pops RIP and skips the red zone. The frame is dead by then, so a signal may arrive at
// any time.
macro_rules! trampoline {
    ($name:literal, $save:literal, $restore:literal) => {
        concat!(
            ".p2align 4\n",
            ".globl ",
            $name,
            "\n.hidden ",
            $name,
            "\n.type ",
            $name,
            ",@function\n",
            $name,
            ":\n",
            ".cfi_startproc\n.cfi_signal_frame\n",
            ".cfi_def_cfa rbp, 144\n",
            ".cfi_offset rip, -136\n.cfi_offset rbp, -144\n",
            ".cfi_offset rax, -160\n.cfi_offset rbx, -168\n.cfi_offset rcx, -176\n.cfi_offset rdx, -184\n",
            ".cfi_offset rsi, -192\n.cfi_offset rdi, -200\n.cfi_offset r8, -208\n.cfi_offset r9, -216\n",
            ".cfi_offset r10, -224\n.cfi_offset r11, -232\n.cfi_offset r12, -240\n.cfi_offset r13, -248\n",
            ".cfi_offset r14, -256\n.cfi_offset r15, -264\n",
            "mov rax, r12\nmov rdx, r12\nshr rdx, 32\n",
            $save,
            " [rsp]\n",
            "fninit\n",
            "push 0x1f80\nldmxcsr [rsp]\npop rax\n",
            // Bit 2: AVX is enabled. Otherwise VZEROUPPER is an invalid instruction.
            "test r12d, 4\njz 2f\nvzeroupper\n2:\n",
            "call rbx\n",
            "mov rax, r12\nmov rdx, r12\nshr rdx, 32\n",
            $restore,
            " [rsp]\n",
            "lea rsp, [rbp - 120]\n",
            "pop r15\npop r14\npop r13\npop r12\npop r11\npop r10\npop r9\npop r8\n",
            "pop rdi\npop rsi\npop rdx\npop rcx\npop rbx\npop rax\n",
            "popfq\n",
            "pop rbp\n",
            ".cfi_def_cfa rsp, 136\n.cfi_same_value rbp\n",
            "ret 128\n",
            ".cfi_endproc\n",
            ".size ",
            $name,
            ", . - ",
            $name,
            "\n",
        )
    };
}

global_asm!(
    ".pushsection .text.kumihimo_inject, \"ax\", @progbits",
    trampoline!("kumihimo_inject_compact", "xsavec64", "xrstor64"),
    trampoline!("kumihimo_inject_standard", "xsave64", "xrstor64"),
    trampoline!("kumihimo_inject_legacy", "fxsave64", "fxrstor64"),
    ".globl kumihimo_inject_end",
    ".hidden kumihimo_inject_end",
    "kumihimo_inject_end:",
    ".popsection",
);

/// Selects the instructions that save this machine's extended state, and returns them. Must run
/// once before the first [`inject`], outside signal handlers; further calls only repeat the result.
/// Does not block.
pub fn prepare() -> Format {
    const OSXSAVE: u32 = 1 << 27;
    let format = if cpuid(1, 0).ecx & OSXSAVE == 0 {
        Format::Legacy
    } else if cpuid(0xd, 1).eax & 2 != 0 {
        Format::Compact
    } else {
        Format::Standard
    };
    if ENTRY.load(Ordering::Acquire) == 0 {
        // SAFETY: the processor and the kernel support this format.
        unsafe { prepare_as(format) };
    }
    format
}

/// Prepares a given format, for tests of formats that [`prepare`] would not select on this machine.
///
/// # Safety
/// The processor supports the format's instructions, and no injected call is in progress. No code
/// that uses state outside the format is interrupted.
#[doc(hidden)]
pub unsafe fn prepare_as(format: Format) {
    let entry = match format {
        Format::Compact => kumihimo_inject_compact as *const (),
        Format::Standard => kumihimo_inject_standard as *const (),
        Format::Legacy => kumihimo_inject_legacy as *const (),
    };
    let (mut mask, mut left_out, mut bytes) = (0, 0, LEGACY);
    if format != Format::Legacy {
        // SAFETY: the caller guarantees that XSAVE is enabled, hence also XGETBV.
        let enabled = unsafe { xgetbv() };
        mask = enabled & !TILES;
        left_out = enabled & TILES;
        bytes = area_bytes(format, mask, |component| {
            let leaf = cpuid(0xd, component);
            Component {
                bytes: leaf.eax as usize,
                offset: leaf.ebx as usize,
                aligned: leaf.ecx & 2 != 0,
            }
        });
    }
    MASK.store(mask, Ordering::Relaxed);
    LEFT_OUT.store(left_out, Ordering::Relaxed);
    AREA.store(bytes.next_multiple_of(64), Ordering::Relaxed);
    ENTRY.store(entry as usize, Ordering::Release);
}

/// One component, as CPUID leaf 0DH describes it (SDM 13.2).
struct Component {
    bytes: usize,
    /// Offset in the standard format.
    offset: usize,
    /// In the compacted format, starts at a multiple of 64.
    aligned: bool,
}

/// Computes the size of the area for `mask`. CPUID's own totals cannot be used: they cover all
/// enabled components, and the total of subleaf 1 includes the components that only the kernel
/// saves.
fn area_bytes(format: Format, mask: u64, describe: impl Fn(u32) -> Component) -> usize {
    let mut end = LEGACY + HEADER;
    for component in (2..63).filter(|c| mask & (1 << c) != 0) {
        let it = describe(component);
        end = if format == Format::Compact {
            let start = if it.aligned { end.next_multiple_of(64) } else { end };
            start + it.bytes
        } else {
            end.max(it.offset + it.bytes)
        };
    }
    end
}

/// Reads XCR0, the components that the kernel has enabled.
///
/// # Safety
/// The kernel has enabled XSAVE (CPUID.1:ECX.OSXSAVE).
unsafe fn xgetbv() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: upheld by the caller; the instruction only reads a register.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags))
    };
    u64::from(high) << 32 | u64::from(low)
}

/// Returns the bytes that must be free below the interrupted RSP: the red zone, the frame, the
/// extended state and 6 KiB for the upcall. The sum is about 9 KiB with AVX-512. Async-signal-safe.
/// Excludes the extended state before [`prepare`].
pub fn room_needed() -> usize {
    RED_ZONE + size_of::<Frame>() + 64 + AREA.load(Ordering::Relaxed) + UPCALL_ROOM
}

/// Returns whether the interrupted code's RSP lies in `stack`. Async-signal-safe.
///
/// # Safety
/// `context` is the context that the kernel passed to the running signal handler.
pub unsafe fn interrupted_on(context: *const ucontext_t, stack: Range<usize>) -> bool {
    // SAFETY: upheld by the caller.
    stack.contains(&(unsafe { register(context, libc::REG_RSP) } as usize))
}

/// Makes the interrupted code call `upcall` before it continues, as if it had called it between two
/// instructions.
///
/// Afterwards all general registers, the flags and the whole extended state (x87, MMX, SSE, AVX,
/// AVX-512, PKRU) are unchanged, even if the code continues on another kernel thread. FS and GS are
/// neither saved nor restored. `upcall` starts as any function does, with the control words of a
/// new thread. In a debugger or backtrace, the interrupted function appears as the caller of
/// `upcall`'s caller.
///
/// Async-signal-safe, does not block; touches no thread-local variable and not errno.
///
/// # Errors
/// Returns a [`Refusal`] and leaves the context unchanged.
///
/// # Safety
/// - `context` is the context that the kernel passed to the running signal handler, and the handler
///   then returns.
/// - `stack_low` is the lowest usable address of the stack that contains the interrupted RSP (see
///   [`interrupted_on`]), and the memory below RSP's red zone is unused.
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
    let entry = ENTRY.load(Ordering::Acquire);
    if entry == 0 {
        return Err(Refusal::NotPrepared);
    }
    let get = |name: libc::c_int| {
        // SAFETY: upheld by the caller.
        unsafe { register(context, name) }
    };
    let rsp = get(libc::REG_RSP) as usize;
    let room = rsp.checked_sub(stack_low).ok_or(Refusal::NotOnThisStack)?;
    // This check also bounds a burst of signals: otherwise each could add a frame before the first
    // upcall starts.
    let code =
        kumihimo_inject_compact as *const () as usize..kumihimo_inject_end as *const () as usize;
    if code.contains(&(get(libc::REG_RIP) as usize)) {
        return Err(Refusal::InTrampoline);
    }
    if room < room_needed() {
        return Err(Refusal::NotEnoughRoom);
    }
    if !rsp.is_multiple_of(8) {
        return Err(Refusal::Misaligned);
    }
    if (stack_low..rsp).contains(&(context as usize)) {
        return Err(Refusal::HandlerOnThisStack);
    }
    // SAFETY: upheld by the caller.
    if unsafe { in_use(context) } & LEFT_OUT.load(Ordering::Relaxed) != 0 {
        return Err(Refusal::Tiles);
    }
    if has_shadow_stack() {
        return Err(Refusal::ShadowStack);
    }

    let flags = get(libc::REG_EFL);
    let frame = (rsp - RED_ZONE - size_of::<Frame>()) as *mut Frame;
    let area = (frame as usize - AREA.load(Ordering::Relaxed)) & !63;
    // SAFETY: the room was checked, and RSP and hence the frame are 8-aligned. The caller grants
    // the memory below the red zone, and the signal frame is elsewhere.
    unsafe {
        frame.write(Frame {
            r15_to_r8: [
                get(libc::REG_R15),
                get(libc::REG_R14),
                get(libc::REG_R13),
                get(libc::REG_R12),
                get(libc::REG_R11),
                get(libc::REG_R10),
                get(libc::REG_R9),
                get(libc::REG_R8),
            ],
            rdi: get(libc::REG_RDI),
            rsi: get(libc::REG_RSI),
            rdx: get(libc::REG_RDX),
            rcx: get(libc::REG_RCX),
            rbx: get(libc::REG_RBX),
            rax: get(libc::REG_RAX),
            flags,
            rbp: get(libc::REG_RBP),
            rip: get(libc::REG_RIP),
        });
        if MASK.load(Ordering::Relaxed) != 0 {
            ((area + LEGACY) as *mut [u64; HEADER / 8]).write([0; HEADER / 8]);
        }
        let set = |name: libc::c_int, value: u64| {
            (*context).uc_mcontext.gregs[name as usize] = value as i64
        };
        set(libc::REG_RSP, area as u64);
        set(libc::REG_RBP, (&raw mut (*frame).rbp) as u64);
        set(libc::REG_RBX, upcall as *const () as u64);
        set(libc::REG_R12, MASK.load(Ordering::Relaxed));
        set(libc::REG_RIP, entry as u64);
        set(libc::REG_EFL, flags & CARRY_TO_RUN);
    }
    Ok(())
}

/// # Safety
/// `context` is the context of a running signal handler.
unsafe fn register(context: *const ucontext_t, name: libc::c_int) -> u64 {
    // SAFETY: upheld by the caller; `name` is one of libc's constants.
    unsafe { (*context).uc_mcontext.gregs[name as usize] as u64 }
}

/// Returns the components of the extended state that the interrupted code uses, from the header of
/// the signal frame's own XSAVE area. The handler's registers do not contain this, since the kernel
/// starts handlers with initial state.
///
/// # Safety
/// `context` is the context of a running signal handler.
unsafe fn in_use(context: *const ucontext_t) -> u64 {
    /// FP_XSTATE_MAGIC1 at byte 464 (`sw_reserved`, asm/sigcontext.h): extended state follows the
    /// FXSAVE image.
    const EXTENDED: u32 = 0x4650_5853;
    // SAFETY: upheld by the caller: the kernel wrote the image or a null pointer. The header
    // follows if the magic word is present.
    unsafe {
        let image = (*context).uc_mcontext.fpregs.cast::<u8>().cast_const();
        if image.is_null() || image.add(464).cast::<u32>().read() != EXTENDED {
            return 3;
        }
        image.add(LEGACY).cast::<u64>().read()
    }
}

/// Returns whether this thread has a shadow stack. RDSSP is a no-op where shadow stacks are off or
/// unsupported (SDM volume 2).
fn has_shadow_stack() -> bool {
    let pointer: u64;
    // SAFETY: reads a register or does nothing.
    unsafe {
        asm!("rdsspq {}", inout(reg) 0u64 => pointer, options(nomem, nostack, preserves_flags))
    };
    pointer != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn area_sizes_agree_with_cpuid() {
        if cpuid(1, 0).ecx & (1 << 27) == 0 {
            return; // no XSAVE: nothing to compare
        }
        let describe = |component| {
            let leaf = cpuid(0xd, component);
            Component {
                bytes: leaf.eax as usize,
                offset: leaf.ebx as usize,
                aligned: leaf.ecx & 2 != 0,
            }
        };
        // SAFETY: OSXSAVE is set.
        let enabled = unsafe { xgetbv() };
        assert_eq!(area_bytes(Format::Standard, enabled, describe), cpuid(0xd, 0).ebx as usize);
        assert!(area_bytes(Format::Compact, enabled, describe) <= cpuid(0xd, 1).ebx as usize);
        assert!(area_bytes(Format::Compact, 3, describe) == LEGACY + HEADER);
    }

    #[test]
    fn area_sizes_follow_the_manuals_layout_rules() {
        // The components of a server with AVX-512, PKRU and tiles: 2 AVX, 5-7 AVX-512, 9 PKRU, 17
        // and 18 tiles (aligned).
        let describe = |component| match component {
            2 => Component { bytes: 256, offset: 576, aligned: false },
            5 => Component { bytes: 64, offset: 1088, aligned: false },
            6 => Component { bytes: 512, offset: 1152, aligned: false },
            7 => Component { bytes: 1024, offset: 1664, aligned: false },
            9 => Component { bytes: 8, offset: 2688, aligned: false },
            17 => Component { bytes: 64, offset: 2752, aligned: true },
            18 => Component { bytes: 8192, offset: 2816, aligned: true },
            other => panic!("component {other} is not in the mask"),
        };
        let without = 0x2e7;
        assert_eq!(area_bytes(Format::Compact, without, describe), 2440);
        assert_eq!(area_bytes(Format::Standard, without, describe), 2696);
        assert_eq!(area_bytes(Format::Compact, without | TILES, describe), 2496 + 64 + 8192);
        assert_eq!(area_bytes(Format::Standard, without | TILES, describe), 11008);
        assert_eq!(area_bytes(Format::Compact, 3 | 1 << 9, describe), 584);
    }

    #[test]
    fn components_in_use_come_from_the_signal_frame() {
        #[repr(C, align(64))]
        struct Image([u64; 72]);
        let mut image = Image([0; 72]);
        // SAFETY: a zeroed context is valid; `in_use` reads only the image.
        unsafe {
            let mut context: ucontext_t = std::mem::zeroed();
            assert_eq!(in_use(&context), 3, "no image");
            image.0[64] = 7 | TILES;
            context.uc_mcontext.fpregs = (&raw mut image).cast();
            assert_eq!(in_use(&context), 3, "an FXSAVE image has no header");
            (&raw mut image).cast::<u8>().add(464).cast::<u32>().write(0x4650_5853);
            assert_eq!(in_use(&context), 7 | TILES);
        }
    }
}
