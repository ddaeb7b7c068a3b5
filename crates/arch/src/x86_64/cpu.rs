//! The context switch, and readers of FS and GS.
//!
//! *FS names the microprocess, GS the kernel thread.* FS is the TLS block of the running
//! microprocess; GS is the record of the kernel thread that carries it. Both are plain registers
//! where the kernel has FSGSBASE, and system calls where it has not.
//!
//! A context is one word, the stack pointer: what the ABI wants kept (callee-saved registers,
//! MXCSR, the x87 control word: System V ABI 3.2.1) lies on the stack above it. A switch ends in
//! `jmp` and not `ret`: the return stack buffer of the processor belongs to the old stack, so a
//! `ret` would always be mispredicted.

use core::arch::{asm, naked_asm};
use std::sync::OnceLock;

/// A suspended flow of control: its stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Context(*mut u8);

impl Context {
    /// No context. Switching to it faults.
    pub const NULL: Context = Context(core::ptr::null_mut());

    /// Prepares a context that calls `entry(argument)` on the stack below `top` when first switched
    /// to.
    ///
    /// The floating-point control words start at the ABI's defaults, as on a new kernel thread.
    ///
    /// # Safety
    /// `top` is 16-aligned, with at least 128 writable bytes below it that nobody else uses.
    /// `entry` never returns.
    pub unsafe fn prepare(
        top: *mut u8,
        entry: extern "C" fn(*mut u8) -> !,
        argument: *mut u8,
    ) -> Context {
        const MXCSR: u64 = 0x1f80;
        const X87: u64 = 0x037f;
        // In the order in which `leave_and_continue` pops it. A return address of 0 is no frame and
        // ends every backtrace.
        let frame: [u64; 6] = [
            MXCSR | (X87 << 32),
            argument as u64,           // rbx
            entry as *const () as u64, // rbp
            first_step as *const () as u64,
            0,
            0,
        ];
        // SAFETY: the caller grants the bytes below `top`; the frame is 48 bytes and u64-aligned
        // since `top` is 16-aligned.
        unsafe {
            let base = top.sub(size_of_val(&frame)).cast::<[u64; 6]>();
            base.write(frame);
            Context(base.cast())
        }
    }

    /// The stack pointer: everything above it is in use.
    pub fn stack_pointer(self) -> *mut u8 {
        self.0
    }
}

/// Where a context begins that nobody has continued yet, and where every backtrace of a begun one
/// ends.
pub const FIRST_STEP: unsafe extern "C" fn() = first_step;

/// Bytes of what a switch leaves at a context's stack pointer: control words, rbx, rbp, address.
/// See [`Context::prepare`].
pub const SAVED: usize = 32;

/// First instruction of a new context: rbx = argument, rbp = entry (see [`Context::prepare`]).
///
/// A naked function has no unwind table, so every backtrace ends here.
#[unsafe(naked)]
unsafe extern "C" fn first_step() {
    // rsp is 16-aligned here, so that `call` gives the callee the alignment it expects.
    naked_asm!("mov rdi, rbx", "mov rax, rbp", "xor ebp, ebp", "call rax", "ud2",)
}

/// The switch: leaves the caller's context in `*save`, continues `to`, and goes on at label 2 when
/// somebody switches back.
///
/// Inline, and not a function that is called: a `call` that no `ret` answers would leave the
/// processor's return stack one off, and every `ret` on the new stack would be mispredicted
/// [measured: see ARCHITECTURE.md]. The compiler saves what is live, since everything but rbx and
/// rbp (which inline assembly may not clobber) is declared clobbered.
macro_rules! leave_and_continue {
    ($save:expr, $to:expr, $($set_fs:literal,)* ; $($operand:tt)*) => {
        asm!(
            "lea rcx, [rip + 2f]",
            "push rcx",
            "push rbp",
            "push rbx",
            "sub rsp, 8",
            "stmxcsr [rsp]",
            "fnstcw [rsp + 4]",
            "mov [rdi], rsp",
            "mov rsp, rsi",
            "ldmxcsr [rsp]",
            "fldcw [rsp + 4]",
            "add rsp, 8",
            "pop rbx",
            "pop rbp",
            $($set_fs,)*
            "pop rcx",
            "jmp rcx",
            "2:",
            inout("rdi") $save => _,
            inout("rsi") $to.0 => _,
            $($operand)*
            out("rax") _, out("rcx") _, out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            out("r12") _, out("r13") _, out("r14") _, out("r15") _,
            clobber_abi("sysv64"),
        )
    };
}

/// Leaves the caller's context in `*save` and continues `to`, with FS = `fs`.
///
/// Returns when somebody switches back. Needs FSGSBASE; see [`fsgsbase`].
///
/// # Safety
/// `to` is a context that was prepared or saved and has not been continued since; `fs` is the FS
/// base it runs with; no reference into `*save` is held elsewhere. Nobody may continue the saved
/// context before this kernel thread has left it.
#[inline(always)]
pub unsafe fn switch_fs(save: *mut Context, to: Context, fs: usize) {
    // SAFETY: the caller's promise. FS is set last: the instruction waits for all before it.
    unsafe { leave_and_continue!(save, to, "wrfsbase rdx", ; inout("rdx") fs => _,) }
}

/// As [`switch_fs`] where both sides run with the same FS (lean microprocesses): FS stays as it is.
///
/// # Safety
/// As for [`switch_fs`]; `to` runs with the FS base that is set now.
#[inline(always)]
pub unsafe fn switch_same(save: *mut Context, to: Context) {
    // SAFETY: the caller's promise.
    unsafe { leave_and_continue!(save, to, ; out("rdx") _,) }
}

/// As [`switch_fs`] for kernels or processors without FSGSBASE: FS is set by arch_prctl(2), about
/// ten times slower.
///
/// # Safety
/// As for [`switch_fs`].
#[inline(always)]
pub unsafe fn switch_prctl(save: *mut Context, to: Context, fs: usize) {
    // SAFETY: the caller's promise. 158 = SYS_arch_prctl, 0x1002 = ARCH_SET_FS; the system call
    // clobbers rax, rcx and r11 only.
    unsafe {
        leave_and_continue!(
            save, to,
            "mov rsi, rdx", "mov edi, 0x1002", "mov eax, 158", "syscall",
            ; inout("rdx") fs => _,
        )
    }
}

/// Whether FS and GS can be written without a system call: the kernel says so in AT_HWCAP2 bit 1
/// (Linux 5.9).
///
/// `KUMI_LAB=fsbase=arch_prctl` forces the slow way.
pub fn fsgsbase() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let asked = kumihimo_config::get().lab.fsbase;
        let forced_off = asked == Some(kumihimo_config::FsBase::ArchPrctl);
        // SAFETY: getauxval only reads the auxiliary vector.
        let hwcap2 = unsafe { libc::getauxval(libc::AT_HWCAP2) };
        !forced_off && hwcap2 & 2 != 0
    })
}

const ARCH_SET_GS: i32 = 0x1001;
const ARCH_SET_FS: i32 = 0x1002;
const ARCH_GET_GS: i32 = 0x1004;

/// The FS base: the address of the running TLS block. Its first word points to itself (ELF TLS
/// ABI), so no privilege is needed.
pub fn fs_base() -> usize {
    let fs: usize;
    // SAFETY: fs:[0] is the TCB's self pointer on every x86_64 ELF system; reading it has no
    // effect.
    unsafe { asm!("mov {}, fs:[0]", out(reg) fs, options(nostack, preserves_flags, readonly)) };
    fs
}

/// Sets FS.
///
/// # Safety
/// `fs` is a complete TLS block that nobody else runs on, and the caller's frame holds no address
/// into the old one.
pub unsafe fn set_fs_base(fs: usize) {
    if fsgsbase() {
        // SAFETY: FSGSBASE is there; the caller answers for `fs`.
        unsafe { asm!("wrfsbase {}", in(reg) fs, options(nostack, preserves_flags)) };
    } else {
        // SAFETY: as above, by system call.
        unsafe { arch_prctl(ARCH_SET_FS, fs) };
    }
}

/// Points GS at this kernel thread's record, or at nothing (0).
///
/// # Safety
/// The record outlives the kernel thread's use of [`gs_word`].
pub unsafe fn set_gs_base(record: usize) {
    if fsgsbase() {
        // SAFETY: FSGSBASE is there; nothing else in user space uses GS on x86_64 Linux.
        unsafe { asm!("wrgsbase {}", in(reg) record, options(nostack, preserves_flags)) };
    } else {
        // SAFETY: as above, by system call.
        unsafe { arch_prctl(ARCH_SET_GS, record) };
    }
}

/// GS: what [`set_gs_base`] set on the calling kernel thread, or 0. Async-signal-safe.
#[must_use]
pub fn gs_base() -> usize {
    let gs: usize;
    if fsgsbase() {
        // SAFETY: FSGSBASE is there; it reads a register.
        unsafe { asm!("rdgsbase {}", out(reg) gs, options(nomem, nostack, preserves_flags)) };
        return gs;
    }
    let mut word = 0usize;
    // SAFETY: the kernel writes one word.
    unsafe { arch_prctl(ARCH_GET_GS, (&raw mut word).addr()) };
    word
}

/// The word at byte `OFFSET` of the record that GS points at.
///
/// Volatile on purpose: after a switch the same code runs on another kernel thread, so no compiler
/// may keep the value.
///
/// # Safety
/// [`set_gs_base`] was called on this kernel thread with a record that has a word there. With GS =
/// 0 this faults.
#[inline(always)]
pub unsafe fn gs_word<const OFFSET: usize>() -> *mut u8 {
    let word: *mut u8;
    // SAFETY: the caller vouches for GS. Without `pure` the block is never merged or moved across
    // calls.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) word, const OFFSET, options(nostack, preserves_flags))
    };
    word
}

/// The 64-bit value at byte `OFFSET` of the record that GS points at.
///
/// As volatile as [`gs_word`], and read whole: one aligned load is never torn (Intel SDM volume
/// 3, 9.1.1). It orders nothing else.
///
/// # Safety
/// As for [`gs_word`]: GS points at a record with an aligned 64-bit value there. Other kernel
/// threads write it only atomically.
#[inline(always)]
pub unsafe fn gs_load64<const OFFSET: usize>() -> u64 {
    let value: u64;
    // SAFETY: the caller vouches for GS. Without `pure` the block is never merged or moved across
    // calls.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) value, const OFFSET, options(nostack, preserves_flags))
    };
    value
}

/// The 32-bit value at byte `OFFSET` of the record that GS points at. See [`gs_load64`].
///
/// # Safety
/// As for [`gs_load64`], with an aligned 32-bit value.
#[inline(always)]
pub unsafe fn gs_load32<const OFFSET: usize>() -> u32 {
    let value: u32;
    // SAFETY: the caller vouches for GS. Without `pure` the block is never merged or moved across
    // calls.
    unsafe {
        asm!("mov {:e}, gs:[{}]", out(reg) value, const OFFSET, options(nostack, preserves_flags))
    };
    value
}

/// Adds one to the 32-bit counter at byte `OFFSET` of the record that GS points at; wraps.
///
/// One instruction, and that is the point: a microprocess leaves its kernel thread, and this
/// thread's signal handlers run, only between two instructions. So the counter that is changed is
/// that of the thread which carries the caller at that moment, and no handler of this thread sees
/// or loses half a change. There is no `lock` prefix: against *other* kernel threads it is not
/// atomic. The compiler moves no memory access across it; the processor may let a later load
/// overtake the store.
///
/// # Safety
/// As for [`gs_load32`]; only this kernel thread (its signal handlers included) writes the counter,
/// others at most read it atomically.
#[inline(always)]
pub unsafe fn gs_inc32<const OFFSET: usize>() {
    // SAFETY: the caller vouches for GS and for the counter. The block is neither `nomem` nor
    // `preserves_flags`.
    unsafe { asm!("inc dword ptr gs:[{}]", const OFFSET, options(nostack)) };
}

/// Takes one from the 32-bit counter at byte `OFFSET` of the record that GS points at; wraps.
/// Returns whether it became zero.
///
/// One instruction, as [`gs_inc32`]; the answer comes from its flags, which a signal handler and an
/// injected call leave as they were. By the time the answer is looked at, the caller may run on
/// another kernel thread.
///
/// # Safety
/// As for [`gs_inc32`].
#[inline(always)]
pub unsafe fn gs_dec32<const OFFSET: usize>() -> bool {
    let zero: u8;
    // SAFETY: the caller vouches for GS and for the counter. `setz` reads the flags of `dec`.
    unsafe {
        asm!("dec dword ptr gs:[{}]", "setz {}", const OFFSET, out(reg_byte) zero, options(nostack))
    };
    zero != 0
}

unsafe fn arch_prctl(code: i32, value: usize) {
    // Raw: after FS changed, libc's errno may not be touched.
    let result: i64;
    // SAFETY: arch_prctl with a SET code reads no memory.
    unsafe {
        asm!("syscall", inlateout("rax") 158i64 => result, in("rdi") i64::from(code), in("rsi") value,
             lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    debug_assert_eq!(result, 0);
}

/// CPUID. It has no side effects, and every x86_64 processor has it.
#[allow(unused_unsafe)] // safe to call from Rust 1.93 on
pub(super) fn cpuid(leaf: u32, sub: u32) -> core::arch::x86_64::CpuidResult {
    // SAFETY: see above.
    unsafe { core::arch::x86_64::__cpuid_count(leaf, sub) }
}

/// Bytes of the XSAVE area for the components that the kernel has enabled.
pub fn extended_state_bytes() -> usize {
    // Leaf 0xd, subleaf 0: EBX is that size.
    if cpuid(0, 0).eax >= 0xd { cpuid(0xd, 0).ebx as usize } else { 512 }
}

/// Requests a cache line without waiting for it. Any address is allowed: a prefetch never faults.
#[inline(always)]
pub fn prefetch(line: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch never faults and changes nothing.
    unsafe { _mm_prefetch::<{ _MM_HINT_T0 }>(line.cast()) }
}

/// futex(2) without a timeout and without libc, which would write errno.
///
/// # Safety
/// `word` lives as long as the call; `operation` needs no further arguments.
pub(crate) unsafe fn futex(word: *const u32, operation: i32, value: u32) {
    // SAFETY: the caller's promise. 202 = SYS_futex; the call clobbers rax, rcx and r11 only.
    unsafe {
        asm!("syscall", inlateout("rax") 202i64 => _, in("rdi") word, in("rsi") i64::from(operation),
             in("rdx") u64::from(value), in("r10") 0, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pair {
        main: Context,
        other: Context,
        count: u64,
    }

    extern "C" fn bounce(argument: *mut u8) -> ! {
        let pair = argument.cast::<Pair>();
        loop {
            // SAFETY: the test passes a live Pair and runs both sides on one kernel thread.
            unsafe {
                (*pair).count += 1;
                switch_same(&raw mut (*pair).other, (*pair).main);
            }
        }
    }

    #[repr(C)]
    struct Record {
        pad: u64,
        wide: u64,
        narrow: u32,
        count: u32,
        after: u32,
    }

    #[test]
    fn record_of_this_kernel_thread_through_gs() {
        use core::mem::offset_of;
        let mut record =
            Record { pad: 7, wide: 0x1122_3344_5566_7788, narrow: 0x99aa_bbcc, count: 0, after: 5 };
        let address = &raw mut record;
        // SAFETY: the record lives on this frame longer than GS points at it, and only this thread
        // uses it.
        unsafe {
            set_gs_base(address as usize);
            assert_eq!(gs_load64::<{ offset_of!(Record, wide) }>(), 0x1122_3344_5566_7788);
            assert_eq!(gs_load32::<{ offset_of!(Record, narrow) }>(), 0x99aa_bbcc);
            // Not kept by the compiler: the record changes behind its back.
            address.cast::<u64>().add(1).write_volatile(3);
            assert_eq!(gs_load64::<{ offset_of!(Record, wide) }>(), 3);
            const COUNT: usize = offset_of!(Record, count);
            gs_inc32::<COUNT>();
            gs_inc32::<COUNT>();
            assert_eq!(gs_load32::<COUNT>(), 2);
            assert!(!gs_dec32::<COUNT>());
            assert!(gs_dec32::<COUNT>());
            assert!(!gs_dec32::<COUNT>(), "wraps below zero");
            assert_eq!(gs_load32::<COUNT>(), u32::MAX);
            gs_inc32::<COUNT>();
            set_gs_base(0);
            assert_eq!(
                ((*address).pad, (*address).narrow, (*address).count, (*address).after),
                (7, 0x99aa_bbcc, 0, 5)
            );
        }
    }

    #[test]
    fn switches_there_and_back_keeping_control_words() {
        let mut stack = vec![0u128; 4096];
        let mut pair = Pair { main: Context::NULL, other: Context::NULL, count: 0 };
        let argument: *mut u8 = (&raw mut pair).cast();
        // SAFETY: the stack is 64 KiB, 16-aligned and only used here; `argument` points to the live
        // pair.
        unsafe {
            (*argument.cast::<Pair>()).other =
                Context::prepare(stack.as_mut_ptr().add(4096).cast(), bounce, argument);
            let fs = fs_base();
            for round in 1..=1000u64 {
                let to = (*argument.cast::<Pair>()).other;
                if round % 2 == 0 && fsgsbase() {
                    switch_fs(&raw mut (*argument.cast::<Pair>()).main, to, fs);
                } else if round % 3 == 0 {
                    switch_prctl(&raw mut (*argument.cast::<Pair>()).main, to, fs);
                } else {
                    switch_same(&raw mut (*argument.cast::<Pair>()).main, to);
                }
                assert_eq!((*argument.cast::<Pair>()).count, round);
            }
        }
    }
}
