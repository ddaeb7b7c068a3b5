//! The context switch, and access to the FS and GS bases.
//!
//! FS holds the address of the running microprocess's TLS block. GS holds the address of the record
//! of the kernel thread that carries it. Where the kernel enables FSGSBASE, both are read and
//! written as registers; elsewhere by system calls.
//!
//! A context is one word, the stack pointer. The state that the ABI requires a callee to preserve
//! (callee-saved registers, MXCSR, x87 control word: System V ABI 3.2.1) is on the stack above it.
//! A switch ends in `jmp` instead of `ret`: the processor's return stack buffer describes the old
//! stack, so a `ret` would always be mispredicted.

use core::arch::{asm, naked_asm};
use std::cell::Cell;
use std::sync::OnceLock;
use std::thread::LocalKey;

/// A suspended flow of control, as its stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Context(*mut u8);

impl Context {
    /// The null context. Switching to it faults.
    pub const NULL: Context = Context(core::ptr::null_mut());

    /// Prepares a context that calls `entry(argument)` on the stack below `top` when first resumed.
    ///
    /// The floating-point control words start at the ABI's defaults, as on a new kernel thread.
    ///
    /// # Safety
    /// `top` is 16-aligned, with at least 128 writable, unused bytes below it. `entry` never
    /// returns.
    pub unsafe fn prepare(
        top: *mut u8,
        entry: extern "C" fn(*mut u8) -> !,
        argument: *mut u8,
    ) -> Context {
        const MXCSR: u64 = 0x1f80;
        const X87: u64 = 0x037f;
        // In the order in which `leave_and_continue` pops the words. The return address 0 ends
        // every backtrace.
        let frame: [u64; 6] = [
            MXCSR | (X87 << 32),
            argument as u64,           // rbx
            entry as *const () as u64, // rbp
            first_step as *const () as u64,
            0,
            0,
        ];
        // SAFETY: the caller grants the bytes below `top`. The frame is 48 bytes, and u64-aligned
        // because `top` is 16-aligned.
        unsafe {
            let base = top.sub(size_of_val(&frame)).cast::<[u64; 6]>();
            base.write(frame);
            Context(base.cast())
        }
    }

    /// Returns the stack pointer; everything above it is in use.
    pub fn stack_pointer(self) -> *mut u8 {
        self.0
    }
}

/// The first instruction of a new context, and the outermost frame of every backtrace in it.
pub const FIRST_STEP: unsafe extern "C" fn() = first_step;

/// Bytes that a switch saves at the context's stack pointer: control words, rbx, rbp and address.
/// See [`Context::prepare`].
pub const SAVED: usize = 32;

/// First instruction of a new context: rbx = argument, rbp = entry (see [`Context::prepare`]).
///
/// A naked function has no unwind table, so every backtrace ends at it.
#[unsafe(naked)]
unsafe extern "C" fn first_step() {
    // rsp is 16-aligned, so `call` gives the callee the alignment that the ABI requires.
    naked_asm!("mov rdi, rbx", "mov rax, rbp", "xor ebp, ebp", "call rax", "ud2",)
}

/// Performs a switch: saves the caller's context in `*save`, resumes `to`, and continues at label 2
/// when another switch resumes the saved context.
///
/// The code is inline. With a called function, a `call` without a matching `ret` would shift the
/// processor's return stack by one entry, and every `ret` on the new stack would be mispredicted
/// [measured: docs/src/decisions/001-inline-switch.md]. Everything except rbx and rbp, which inline
/// assembly may not clobber, is declared clobbered, so the compiler saves the live registers.
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

/// Saves the caller's context in `*save` and resumes `to` with FS = `fs`.
///
/// Returns when another switch resumes the saved context. Requires FSGSBASE; see [`fsgsbase`].
///
/// # Safety
/// `to` was prepared or saved and has not been resumed since; `fs` is the FS base it runs with. No
/// other reference into `*save` exists. The saved context must not be resumed before this kernel
/// thread has left it.
#[inline(always)]
pub unsafe fn switch_fs(save: *mut Context, to: Context, fs: usize) {
    // SAFETY: upheld by the caller. FS is set last because WRFSBASE waits for all earlier
    // instructions.
    unsafe { leave_and_continue!(save, to, "wrfsbase rdx", ; inout("rdx") fs => _,) }
}

/// Switches as [`switch_fs`] does, but keeps FS. Both sides must run with the same FS (lean
/// microprocesses).
///
/// # Safety
/// Same requirements as [`switch_fs`]; `to` runs with the FS base that is set now.
#[inline(always)]
pub unsafe fn switch_same(save: *mut Context, to: Context) {
    // SAFETY: upheld by the caller.
    unsafe { leave_and_continue!(save, to, ; out("rdx") _,) }
}

/// Switches as [`switch_fs`] does, but sets FS by arch_prctl(2), for kernels or processors without
/// FSGSBASE. About ten times slower.
///
/// # Safety
/// Same requirements as [`switch_fs`].
#[inline(always)]
pub unsafe fn switch_prctl(save: *mut Context, to: Context, fs: usize) {
    // SAFETY: upheld by the caller. 158 = SYS_arch_prctl, 0x1002 = ARCH_SET_FS; the system call
    // clobbers only rax, rcx and r11.
    unsafe {
        leave_and_continue!(
            save, to,
            "mov rsi, rdx", "mov edi, 0x1002", "mov eax, 158", "syscall",
            ; inout("rdx") fs => _,
        )
    }
}

/// Returns whether FS and GS can be written without a system call, which the kernel reports in
/// AT_HWCAP2 bit 1 (Linux 5.9).
///
/// `KUMI_LAB=fsbase=arch_prctl` forces the system call.
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

/// How a switch sets the thread pointer, and where the record's address is, for reports.
pub const BASES: &str = "wrfsbase";

const ARCH_SET_GS: i32 = 0x1001;
const ARCH_SET_FS: i32 = 0x1002;
const ARCH_GET_GS: i32 = 0x1004;

/// Returns the FS base, which is the address of the running TLS block. Reads it from the block's
/// first word, which points to itself (ELF TLS ABI), so FSGSBASE is not needed.
pub fn fs_base() -> usize {
    let fs: usize;
    // SAFETY: fs:[0] is the TCB's self pointer on every x86_64 ELF system; reading it has no side
    // effect.
    unsafe { asm!("mov {}, fs:[0]", out(reg) fs, options(nostack, preserves_flags, readonly)) };
    fs
}

/// Sets the FS base.
///
/// # Safety
/// `fs` is a complete TLS block on which no other thread runs, and the caller's frame holds no
/// address into the old block.
pub unsafe fn set_fs_base(fs: usize) {
    if fsgsbase() {
        // SAFETY: FSGSBASE is enabled; the caller guarantees that `fs` is valid.
        unsafe { asm!("wrfsbase {}", in(reg) fs, options(nostack, preserves_flags)) };
    } else {
        // SAFETY: as above, by system call.
        unsafe { arch_prctl(ARCH_SET_FS, fs) };
    }
}

/// Points GS at this kernel thread's record; 0 means none.
///
/// # Safety
/// The record outlives the kernel thread's use of [`gs_word`].
pub unsafe fn set_gs_base(record: usize) {
    if fsgsbase() {
        // SAFETY: FSGSBASE is enabled; nothing else in user space uses GS on x86_64 Linux.
        unsafe { asm!("wrgsbase {}", in(reg) record, options(nostack, preserves_flags)) };
    } else {
        // SAFETY: as above, by system call.
        unsafe { arch_prctl(ARCH_SET_GS, record) };
    }
}

/// Returns the address that [`set_gs_base`] set on the calling kernel thread, or 0.
/// Async-signal-safe after the first call, which reads the settings as [`fsgsbase`] does.
#[must_use]
pub fn gs_base() -> usize {
    let gs: usize;
    if fsgsbase() {
        // SAFETY: FSGSBASE is enabled; the instruction only reads a register.
        unsafe { asm!("rdgsbase {}", out(reg) gs, options(nomem, nostack, preserves_flags)) };
        return gs;
    }
    let mut word = 0usize;
    // SAFETY: the kernel writes one word.
    unsafe { arch_prctl(ARCH_GET_GS, (&raw mut word).addr()) };
    word
}

/// Returns the word at byte `OFFSET` of the record that GS points to.
///
/// The read is volatile: after a switch the same code runs on another kernel thread, so the
/// compiler must not cache the value.
///
/// # Safety
/// [`set_gs_base`] was called on this kernel thread with a record that has a word at `OFFSET`.
/// Faults if GS is 0.
#[inline(always)]
pub unsafe fn gs_word<const OFFSET: usize>() -> *mut u8 {
    let word: *mut u8;
    // SAFETY: the caller guarantees that GS is valid. Without `pure`, the compiler does not merge
    // the block or move it across calls.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) word, const OFFSET, options(nostack, preserves_flags))
    };
    word
}

/// Returns the 64-bit value at byte `OFFSET` of the record that GS points to.
///
/// The read is volatile like that of [`gs_word`], and one aligned load is never torn (Intel SDM
/// volume 3, 9.1.1). It orders no other access.
///
/// # Safety
/// Same requirements as [`gs_word`], with an aligned 64-bit value at `OFFSET`. Other kernel threads
/// write the value only atomically.
#[inline(always)]
pub unsafe fn gs_load64<const OFFSET: usize>() -> u64 {
    let value: u64;
    // SAFETY: the caller guarantees that GS is valid. Without `pure`, the compiler does not merge
    // the block or move it across calls.
    unsafe {
        asm!("mov {}, gs:[{}]", out(reg) value, const OFFSET, options(nostack, preserves_flags))
    };
    value
}

/// Returns the 32-bit value at byte `OFFSET` of the record that GS points to. See [`gs_load64`].
///
/// # Safety
/// Same requirements as [`gs_load64`], with an aligned 32-bit value.
#[inline(always)]
pub unsafe fn gs_load32<const OFFSET: usize>() -> u32 {
    let value: u32;
    // SAFETY: the caller guarantees that GS is valid. Without `pure`, the compiler does not merge
    // the block or move it across calls.
    unsafe {
        asm!("mov {:e}, gs:[{}]", out(reg) value, const OFFSET, options(nostack, preserves_flags))
    };
    value
}

/// Increments the 32-bit counter at byte `OFFSET` of the record that GS points to, with
/// wrap-around.
///
/// The increment is a single instruction. A microprocess changes its kernel thread, and a kernel
/// thread runs its signal handlers, only between two instructions. The counter is therefore always
/// that of the thread that carries the caller at that moment, and no handler on that thread
/// observes or loses half a change.
///
/// Without a `lock` prefix, the increment is not atomic with respect to other kernel threads. The
/// compiler moves no memory access across it; the processor may execute a later load before the
/// store.
///
/// # Safety
/// Same requirements as [`gs_load32`]. Only this kernel thread, including its signal handlers,
/// writes the counter; other threads at most read it atomically.
#[inline(always)]
pub unsafe fn gs_inc32<const OFFSET: usize>() {
    // SAFETY: the caller guarantees that GS and the counter are valid. The block is neither `nomem`
    // nor `preserves_flags`.
    unsafe { asm!("inc dword ptr gs:[{}]", const OFFSET, options(nostack)) };
}

/// Decrements the 32-bit counter at byte `OFFSET` of the record that GS points to, with
/// wrap-around. Returns whether it became zero.
///
/// The decrement is a single instruction, as in [`gs_inc32`]. The result comes from its flags,
/// which signal handlers and injected calls preserve. The caller may already run on another kernel
/// thread when it uses the result.
///
/// # Safety
/// Same requirements as [`gs_inc32`].
#[inline(always)]
pub unsafe fn gs_dec32<const OFFSET: usize>() -> bool {
    let zero: u8;
    // SAFETY: the caller guarantees that GS and the counter are valid. `setz` reads the flags of
    // `dec`.
    unsafe {
        asm!("dec dword ptr gs:[{}]", "setz {}", const OFFSET, out(reg_byte) zero, options(nostack))
    };
    zero != 0
}

unsafe fn arch_prctl(code: i32, value: usize) {
    // A bare system call: after a change of FS, libc's errno must not be touched.
    let result: i64;
    // SAFETY: the SET codes access no memory; ARCH_GET_GS writes one word at `value`.
    unsafe {
        asm!("syscall", inlateout("rax") 158i64 => result, in("rdi") i64::from(code), in("rsi") value,
             lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    debug_assert_eq!(result, 0);
}

/// Executes CPUID, which has no side effects and exists on every x86_64 processor.
#[allow(unused_unsafe)] // safe to call from Rust 1.93 on
pub(super) fn cpuid(leaf: u32, sub: u32) -> core::arch::x86_64::CpuidResult {
    // SAFETY: see above.
    unsafe { core::arch::x86_64::__cpuid_count(leaf, sub) }
}

/// Returns false. Code that accesses the record through GS needs no protection from injected calls,
/// because each access is a single instruction.
#[inline(always)]
#[must_use]
pub fn is_indivisible(_pc: usize) -> bool {
    false
}

/// Returns the size of a page in bytes, which is the same on every x86_64 system.
#[inline(always)]
#[must_use]
pub const fn page_size() -> usize {
    4096
}

/// Reads a thread-local variable of the present kernel thread or microprocess.
#[inline(always)]
pub fn read_local<T: Copy>(variable: &'static LocalKey<Cell<T>>) -> T {
    variable.get()
}

/// Returns the size in bytes of the XSAVE area for the components that the kernel has enabled.
pub fn extended_state_bytes() -> usize {
    // CPUID leaf 0DH, subleaf 0: EBX is that size.
    if cpuid(0, 0).eax >= 0xd { cpuid(0xd, 0).ebx as usize } else { 512 }
}

/// Sets the calling kernel thread's rights to a protection key as pkey_set(3) does. Returns false
/// where the architecture has no register for them.
///
/// # Safety
/// `key` is below 16 and `rights` below 4; pkey_alloc(2) has succeeded, so the register exists.
pub(crate) unsafe fn set_protection_key(key: u32, rights: u32) -> bool {
    // SAFETY: the caller's promise. The register's other bits are written back.
    unsafe {
        let (low, _high): (u32, u32);
        asm!("rdpkru", out("eax") low, out("edx") _high, in("ecx") 0, options(nomem, nostack));
        let shift = 2 * key;
        let low = low & !(3 << shift) | rights << shift;
        asm!("wrpkru", in("eax") low, in("edx") 0, in("ecx") 0, options(nostack));
    }
    true
}

/// Returns the calling kernel thread's rights to protection keys (PKRU; pkeys(7)), or 0 if the
/// processor or the kernel has none.
pub(crate) fn protection_keys() -> u32 {
    static HAS_KEYS: OnceLock<bool> = OnceLock::new();
    // CPUID leaf 7, ECX bit 4: the kernel has enabled them (Intel SDM, OSPKE).
    if !*HAS_KEYS.get_or_init(|| cpuid(7, 0).ecx & 1 << 4 != 0) {
        return 0;
    }
    let rights: u32;
    // SAFETY: the instruction exists, as checked above; it reads a register of this thread.
    unsafe {
        asm!("rdpkru", out("eax") rights, out("edx") _, in("ecx") 0, options(nomem, nostack));
    }
    rights
}

/// Prefetches a cache line without waiting for it. Any address is allowed, because a prefetch never
/// faults.
#[inline(always)]
pub fn prefetch(line: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch never faults and changes nothing.
    unsafe { _mm_prefetch::<{ _MM_HINT_T0 }>(line.cast()) }
}

/// Calls futex(2) without a timeout. Bypasses libc, which would write errno.
///
/// # Safety
/// `word` lives as long as the call; `operation` needs no further arguments.
pub(crate) unsafe fn futex(word: *const u32, operation: i32, value: u32) {
    let word = word.expose_provenance();
    let (operation, value) = (operation as usize, value as usize);
    // SAFETY: upheld by the caller.
    unsafe { crate::system_call(libc::SYS_futex, [word, operation, value, 0, 0, 0]) };
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

    #[test]
    fn switches_preserve_control_words() {
        let mut stack = vec![0u128; 4096];
        let mut pair = Pair { main: Context::NULL, other: Context::NULL, count: 0 };
        let argument: *mut u8 = (&raw mut pair).cast();
        // SAFETY: the stack is 64 KiB, 16-aligned and not used elsewhere; `argument` points to the
        // live pair.
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
