//! The C library's thread block on x86_64: variant II of ELF's thread-local storage.
//!
//! ```text
//!      | static TLS of all modules | struct pthread |
//!                           FS ->  ^
//! ```
//! `struct pthread` begins with the TCB, whose second word is the address of the dtv.

use std::ffi::c_void;
use std::ops::Range;

/// Offsets, from the thread pointer, of the parts of a thread block.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// The static TLS area, including the surplus for libraries loaded late.
    pub statics: Range<isize>,
    /// `struct pthread`.
    pub thread: Range<isize>,
}

/// Returns the parts of a block. `total` is the size of static TLS with the TCB, as ld.so reports
/// it, and `thread` that of `struct pthread`.
pub(crate) fn parts(total: usize, thread: usize) -> Option<Parts> {
    let below = total.checked_sub(thread).filter(|below| *below > 0)?.next_multiple_of(64);
    Some(Parts { statics: -below.cast_signed()..0, thread: 0..thread.cast_signed() })
}

/// Returns the offset of the word that holds the address of the dtv. `described` is the offset in
/// `struct pthread` that glibc describes to debuggers.
pub(crate) fn dtv(_parts: &Parts, described: isize) -> Option<isize> {
    Some(described)
}

/// Words of the block's head (`tls/template.rs`) after its first four.
pub(crate) const HEAD_WORDS: usize = 12;
/// The one of these words that holds the mangled stack pointer of a jump buffer at the head's
/// start: `JB_RSP` of glibc's jmpbuf-offsets.h is 6.
pub(crate) const UNWIND_TO: usize = 2;

/// Aligns the address of a block's head. The C library aligns blocks to 64 bytes already.
#[inline(always)]
pub(crate) fn align_head(head: *mut u8) -> *mut u8 {
    head
}
/// Bytes that [`align_head`] may skip.
pub(crate) const HEAD_SLACK: usize = 0;

/// Mangles a pointer as PTR_MANGLE in glibc's sysdeps/unix/sysv/linux/x86_64/pointer_guard.h does.
pub(crate) fn mangle(pointer: u64) -> u64 {
    let guard: u64;
    // SAFETY: reads the pointer guard, which glibc keeps at fs:0x30 of every block with the same
    // value.
    unsafe {
        core::arch::asm!("mov {}, fs:[0x30]", out(reg) guard, options(nostack, preserves_flags, readonly))
    };
    (pointer ^ guard).rotate_left(0x11)
}

/// The donor's start routine: see `tls/donor.rs`, which describes its steps and the structure that
/// `start` points to.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn donor_main(start: *mut c_void) -> *mut c_void {
    core::arch::naked_asm!(
        "mov r12, rdi",
        "mov r13, fs:[0]",
        "mov [r12 + 8], r13",
        // rt_sigprocmask(SIG_BLOCK, &mask, NULL, 8)
        "mov eax, 14",
        "xor edi, edi",
        "lea rsi, [r12 + 32]",
        "xor edx, edx",
        "mov r10d, 8",
        "syscall",
        "mov r14, [r12 + 24]",
        "add r14, r13",
        "lock or dword ptr [r14], 0x10",
        "2:",
        "test dword ptr [r14], 0x40",
        "jz 3f",
        "mov eax, 24", // sched_yield
        "syscall",
        "jmp 2b",
        "3:",
        "mov rax, [r12 + 16]",
        "mov ecx, [r12 + 4]",
        "mov [r13 + rax], ecx",
        // set_robust_list(NULL, 24): the kernel must not walk the block's list when this thread
        // ends
        "mov eax, 273",
        "xor edi, edi",
        "mov esi, 24",
        "syscall",
        // set_tid_address(&word): the kernel clears the word and wakes its waiters when the thread
        // is gone
        "mov eax, 218",
        "mov rdi, r12",
        "syscall",
        "mov eax, 60", // exit
        "xor edi, edi",
        "syscall",
        "ud2",
    )
}

/// Returns why no blocks can be built in this process, whatever the C library is.
pub(crate) fn obstacle() -> Option<&'static str> {
    const SANITIZER: &str =
        "ThreadSanitizer keeps its own state of each kernel thread in thread-local storage";
    if has_thread_sanitizer() {
        return Some(SANITIZER);
    }
    None
}

/// Returns whether this program was built with ThreadSanitizer, whose runtime is then linked in.
fn has_thread_sanitizer() -> bool {
    let at: usize;
    // SAFETY: loads an address from the global offset table, which is null if the weak symbol is
    // undefined.
    unsafe {
        core::arch::asm!(
            // A note, by which `kumi run` finds programs that have the runtime in them.
            ".pushsection .note.kumihimo.runtime, \"a\", @note",
            ".balign 4",
            ".long 9, 0, 1",
            ".asciz \"kumihimo\"",
            ".balign 4",
            ".popsection",
            ".weak __tsan_init",
            "mov {}, [rip + __tsan_init@GOTPCREL]",
            out(reg) at,
            options(nostack, preserves_flags, readonly)
        );
    }
    at != 0
}

/// The instruction that a replaced name consists of: a jump through the word at `{hook}`.
macro_rules! jump_through_hook {
    () => {
        "jmp [rip + {hook}]"
    };
}
pub(crate) use jump_through_hook;
