//! A call injected from a signal handler into the code that the signal interrupted.
//!
//! A handler may not switch contexts: it runs on the kernel thread's alternate stack, inside a
//! signal frame that belongs to this kernel thread. So it only arranges that the interrupted code,
//! when the handler returns, calls an *upcall* before it goes on: as if it had itself called it
//! between two instructions. By then the signal is over, the upcall is ordinary code on the
//! interrupted stack, and may switch to other microprocesses and come back on another kernel
//! thread.
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
//! The handler, which has all registers at hand in its `ucontext`, writes the general ones; the
//! trampoline, where the kernel's sigreturn continues, saves the extended state, calls, and
//! restores everything. What the upcall starts with is what the ABI wants at a call: DF, AC and TF
//! clear, an empty x87 stack, the control words of a new thread (MXCSR 0x1f80, x87 0x37f) and clean
//! upper halves of the vector registers, even where the interrupted code has changed rounding or is
//! in the middle of MMX code. The interrupted code gets its own back. FS and GS are not touched: FS
//! is the microprocess's own and the switch sets it, GS is another one if the upcall came back on
//! another kernel thread. The signal mask is the kernel thread's too.
//!
//! Sources: System V ABI for AMD64, 3.2.2 (red zone) and 3.2.1 (registers, direction flag, control
//! words); Intel SDM volume 1, chapter 13 (XSAVE, XSAVEC, XRSTOR; 13.4 the area's layout, 13.2 how
//! it is enumerated), volume 2, CPUID leaf 0DH.

use core::arch::{asm, global_asm};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use libc::ucontext_t;

use super::cpu::cpuid;

/// Bytes below RSP that belong to leaf functions (System V ABI 3.2.2).
const RED_ZONE: usize = 128;
/// What the upcall may use for its own frames, bytes: as much as
/// [`stack::minimum`](crate::stack::minimum) counts for ordinary frames.
const UPCALL_ROOM: usize = 6 << 10;
/// Legacy region and header of an XSAVE area (SDM 13.4.1, 13.4.2).
const LEGACY: usize = 512;
const HEADER: usize = 64;
/// XCR0 bits of the AMX tiles: 8 KiB that hardly anybody uses, and that no stack of ours would have
/// room for.
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

/// The instructions that save the extended state. What they are was found out by [`prepare`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// XSAVEC: components that are in use, compacted.
    Compact,
    /// XSAVE: every component has its place.
    Standard,
    /// FXSAVE: x87 and SSE. Right where the kernel enables no XSAVE, hence no AVX.
    Legacy,
}

/// Why a call was not injected. The context is then as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// [`prepare`] was not called.
    NotPrepared,
    /// The interrupted RSP lies below the given stack.
    NotOnThisStack,
    /// Less than [`room_needed`] bytes between the stack's lowest address and the interrupted RSP.
    NotEnoughRoom,
    /// The interrupted RSP is no multiple of 8.
    Misaligned,
    /// The handler itself runs on the interrupted stack, where the frame would go: it wants
    /// `SA_ONSTACK` and an alternate stack.
    HandlerOnThisStack,
    /// A call was injected already and is just being started or left.
    InTrampoline,
    /// The interrupted code uses AMX tiles, which the trampoline does not save.
    Tiles,
    /// This thread has a shadow stack (CET), on which the injected return address is missing.
    ShadowStack,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NotPrepared => "no call injected: inject::prepare() was not called",
            Refusal::NotOnThisStack => {
                "no call injected: the interrupted code is not on the given stack"
            }
            Refusal::NotEnoughRoom => {
                "no call injected: too little room on the interrupted stack; make it larger"
            }
            Refusal::Misaligned => {
                "no call injected: the interrupted stack pointer is no multiple of 8"
            }
            Refusal::HandlerOnThisStack => {
                "no call injected: the handler is on the interrupted stack; set SA_ONSTACK"
            }
            Refusal::InTrampoline => "no call injected: one is being started or left",
            Refusal::Tiles => {
                "no call injected: the interrupted code uses AMX tiles, which are not saved"
            }
            Refusal::ShadowStack => {
                "no call injected: this thread has a shadow stack; start the program without"
            }
        })
    }
}

impl std::error::Error for Refusal {}

/// Where sigreturn continues; 0 until prepared. Stored last (release) and loaded first (acquire): a
/// reader that sees it sees the others.
static ENTRY: AtomicUsize = AtomicUsize::new(0);
/// The components that the trampoline saves, and the bytes they take.
static MASK: AtomicU64 = AtomicU64::new(0);
static AREA: AtomicUsize = AtomicUsize::new(0);
/// Components that the kernel enables and the trampoline leaves out.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn kumihimo_inject_compact();
    fn kumihimo_inject_standard();
    fn kumihimo_inject_legacy();
    fn kumihimo_inject_end();
}

// Entered by sigreturn with rsp = area (a multiple of 64), rbp = &frame.rbp, rbx = upcall, r12 =
// mask; the handler has cleared the area's header, since XSAVE and XSAVEC write only the head of it
// and XRSTOR insists on the rest being zero (SDM 13.8.1, 13.8.2). The upcall keeps rbx, rbp and
// r12; nothing else is relied on after it, not even DF or the x87 stack.
//
// The 64-bit forms: the others cut the x87 instruction and operand pointers to 32 bits.
//
// A waiting x87 exception stays pending in the area, since neither XSAVE nor FNINIT waits for it.
//
// Call frame information: from the first instruction to the last `pop`, everything is at a fixed
// distance from rbp, and the CFA is the interrupted RSP itself. A signal frame ("S"): its caller
// was interrupted *at* the address, not one instruction behind it.
//
// `ret 128` pops RIP and goes back over the red zone; by then nothing of the frame is needed, so a
// signal may come at any time.
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
            // Bit 2: AVX is enabled. Without it VZEROUPPER is an invalid instruction.
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

/// Finds out how this machine saves its extended state. To be called once before the first
/// [`inject`], outside signal handlers; further calls only repeat the answer. Does not block.
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
        // SAFETY: the processor and the kernel have this format.
        unsafe { prepare_as(format) };
    }
    format
}

/// As [`prepare`], with a given format: for tests of the formats that this machine would not
/// choose.
///
/// # Safety
/// The processor has the format's instructions; no injected call is under way; and code that uses
/// more than the format saves is not interrupted.
#[doc(hidden)]
pub unsafe fn prepare_as(format: Format) {
    let entry = match format {
        Format::Compact => kumihimo_inject_compact as *const (),
        Format::Standard => kumihimo_inject_standard as *const (),
        Format::Legacy => kumihimo_inject_legacy as *const (),
    };
    let (mut mask, mut left_out, mut bytes) = (0, 0, LEGACY);
    if format != Format::Legacy {
        // SAFETY: the caller's promise: XSAVE is enabled, so XGETBV is.
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

/// What CPUID leaf 0DH says of one component (SDM 13.2).
struct Component {
    bytes: usize,
    /// In the standard format.
    offset: usize,
    /// In the compacted format: to a multiple of 64.
    aligned: bool,
}

/// The size of the area for `mask`. Computed and not read: CPUID's totals are for all that is
/// enabled, and by subleaf 1 with what only the kernel saves.
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

/// XCR0: the components that the kernel has enabled.
///
/// # Safety
/// The kernel has enabled XSAVE (CPUID.1:ECX.OSXSAVE).
unsafe fn xgetbv() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller's promise; it reads a register only.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags))
    };
    u64::from(high) << 32 | u64::from(low)
}

/// How many bytes must be free below the interrupted RSP: the red zone, the frame, the extended
/// state and 6 KiB for the upcall. About 9 KiB with AVX-512. Async-signal-safe. Before [`prepare`]
/// it leaves out the extended state.
pub fn room_needed() -> usize {
    RED_ZONE + size_of::<Frame>() + 64 + AREA.load(Ordering::Relaxed) + UPCALL_ROOM
}

/// Whether the code that `context` interrupted was on the stack `stack`: its RSP lies within.
/// Async-signal-safe.
///
/// # Safety
/// `context` is the one that the kernel passed to the running signal handler.
pub unsafe fn interrupted_on(context: *const ucontext_t, stack: Range<usize>) -> bool {
    // SAFETY: the caller's promise.
    stack.contains(&(unsafe { register(context, libc::REG_RSP) } as usize))
}

/// Makes the interrupted context of `context` call `upcall` before it goes on, as if the code had
/// called it between two instructions.
///
/// Afterwards all general registers, the flags and the whole extended state (x87, MMX, SSE, AVX,
/// AVX-512, PKRU) are as before, wherever the code continues: it may be on another kernel thread.
/// FS and GS are neither saved nor restored. `upcall` starts as any function does, with the control
/// words of a new thread. A debugger or a backtrace inside it sees the interrupted function as its
/// caller's caller.
///
/// Async-signal-safe, does not block; touches no thread-local variable and no errno.
///
/// # Errors
/// [`Refusal`]; the context is unchanged then.
///
/// # Safety
/// - `context` is the one that the kernel passed to the running signal handler, and the handler
///   then returns.
/// - `stack_low` is the lowest usable address of the stack that the interrupted RSP lies in (see
///   [`interrupted_on`]), and nobody else uses what is below RSP's red zone.
/// - The interrupted code tolerates the call *there*: it is not within the runtime, holds no lock
///   that `upcall` wants, and if `upcall` switches, then it caches nothing that belongs to the
///   kernel thread.
/// - `upcall` returns in the usual way: nothing unwinds through the trampoline. That it is
///   `extern "C"` makes a panic abort.
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
        // SAFETY: the caller's promise.
        unsafe { register(context, name) }
    };
    let rsp = get(libc::REG_RSP) as usize;
    let room = rsp.checked_sub(stack_low).ok_or(Refusal::NotOnThisStack)?;
    // Also ends a storm of signals that would otherwise pile frame upon frame before the first
    // upcall has begun.
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
    // SAFETY: the caller's promise.
    if unsafe { in_use(context) } & LEFT_OUT.load(Ordering::Relaxed) != 0 {
        return Err(Refusal::Tiles);
    }
    if has_shadow_stack() {
        return Err(Refusal::ShadowStack);
    }

    let flags = get(libc::REG_EFL);
    let frame = (rsp - RED_ZONE - size_of::<Frame>()) as *mut Frame;
    let area = (frame as usize - AREA.load(Ordering::Relaxed)) & !63;
    // SAFETY: the room was checked, RSP is 8-aligned and so is the frame; the caller grants the
    // memory below the red zone, and the signal frame is elsewhere.
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
/// `context` is a signal handler's.
unsafe fn register(context: *const ucontext_t, name: libc::c_int) -> u64 {
    // SAFETY: the caller's promise; `name` is one of libc's constants.
    unsafe { (*context).uc_mcontext.gregs[name as usize] as u64 }
}

/// The components of the extended state that the interrupted code had in use: the header of the
/// signal frame's own XSAVE area. The handler's registers do not tell, since the kernel starts
/// handlers with fresh ones.
///
/// # Safety
/// `context` is a signal handler's.
unsafe fn in_use(context: *const ucontext_t) -> u64 {
    /// FP_XSTATE_MAGIC1 at byte 464 (`sw_reserved`, asm/sigcontext.h): more than the FXSAVE image
    /// follows.
    const EXTENDED: u32 = 0x4650_5853;
    // SAFETY: the caller's promise: the kernel wrote the image, or a null pointer; the header
    // follows if the magic word says so.
    unsafe {
        let image = (*context).uc_mcontext.fpregs.cast::<u8>().cast_const();
        if image.is_null() || image.add(464).cast::<u32>().read() != EXTENDED {
            return 3;
        }
        image.add(LEGACY).cast::<u64>().read()
    }
}

/// RDSSP is a no-op where shadow stacks are off or unknown (SDM volume 2).
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
    fn sizes_agree_with_the_processor() {
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
    fn layouts_of_the_manual() {
        // As on a server with AVX-512, PKRU and tiles: 2 AVX, 5-7 AVX-512, 9 PKRU, 17 and 18 tiles
        // (aligned).
        let describe = |component| match component {
            2 => Component { bytes: 256, offset: 576, aligned: false },
            5 => Component { bytes: 64, offset: 1088, aligned: false },
            6 => Component { bytes: 512, offset: 1152, aligned: false },
            7 => Component { bytes: 1024, offset: 1664, aligned: false },
            9 => Component { bytes: 8, offset: 2688, aligned: false },
            17 => Component { bytes: 64, offset: 2752, aligned: true },
            18 => Component { bytes: 8192, offset: 2816, aligned: true },
            other => panic!("component {other} was not asked for"),
        };
        let without = 0x2e7;
        assert_eq!(area_bytes(Format::Compact, without, describe), 2440);
        assert_eq!(area_bytes(Format::Standard, without, describe), 2696);
        assert_eq!(area_bytes(Format::Compact, without | TILES, describe), 2496 + 64 + 8192);
        assert_eq!(area_bytes(Format::Standard, without | TILES, describe), 11008);
        assert_eq!(area_bytes(Format::Compact, 3 | 1 << 9, describe), 584);
    }

    #[test]
    fn what_the_signal_frame_says_is_in_use() {
        #[repr(C, align(64))]
        struct Image([u64; 72]);
        let mut image = Image([0; 72]);
        // SAFETY: a zeroed context is valid; `in_use` reads the image only.
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
