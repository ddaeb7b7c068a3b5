//! The C library's thread block on AArch64: variant I of ELF's thread-local storage.
//!
//! ```text
//!      | struct pthread | TCB | static TLS of all modules |
//!          TPIDR_EL0 -> ^
//! ```
//! The TCB has two words: the address of the dtv, and one that glibc does not use.
//!
//! Sources: ELF for the Arm 64-bit Architecture, "Thread Local Storage"; glibc's
//! sysdeps/aarch64/nptl/tls.h.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::OnceLock;

/// Offsets, from the thread pointer, of the parts of a thread block.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// The TCB and the static TLS area, including the surplus for libraries loaded late.
    pub statics: Range<isize>,
    /// `struct pthread`.
    pub thread: Range<isize>,
}

/// Returns the parts of a block. `total` is the size of static TLS with the TCB, as ld.so reports
/// it, and `thread` that of `struct pthread`.
pub(crate) fn parts(total: usize, thread: usize) -> Option<Parts> {
    let is_known = total >= TCB && total.is_multiple_of(8);
    let (above, below) = (total.cast_signed(), thread.cast_signed());
    is_known.then_some(Parts { statics: 0..above, thread: -below..0 })
}

/// Bytes of the TCB.
const TCB: usize = 16;

/// Returns the offset of the word that holds the address of the dtv. `described` is the offset in
/// `struct pthread` that glibc describes to debuggers: just behind the structure.
pub(crate) fn dtv(parts: &Parts, described: isize) -> Option<isize> {
    (parts.thread.start + described == 0).then_some(0)
}

/// Words of the block's head (`tls/template.rs`) after its first four: the head has room for a
/// `struct pthread_unwind_buf`, 216 bytes here.
pub(crate) const HEAD_WORDS: usize = 28;
/// The one of these words that holds the mangled stack pointer of a jump buffer at the head's
/// start: `JB_SP` of glibc's jmpbuf-offsets.h is 13.
pub(crate) const UNWIND_TO: usize = 13 - 4;

/// Aligns the address of a block's head. The C library aligns thread pointers to 16 bytes only.
#[inline(always)]
pub(crate) fn align_head(head: *mut u8) -> *mut u8 {
    head.map_addr(|address| address & !63)
}
/// Bytes that [`align_head`] may skip.
pub(crate) const HEAD_SLACK: usize = 64;

/// Mangles a pointer as PTR_MANGLE in glibc's sysdeps/unix/sysv/linux/aarch64/pointer_guard.h does.
/// Without the guard's symbol the value ends no unwinding too early: see `tls/template.rs`.
pub(crate) fn mangle(pointer: u64) -> u64 {
    static GUARD: OnceLock<u64> = OnceLock::new();
    let guard = GUARD.get_or_init(|| {
        // SAFETY: both strings are terminated. The symbol is a word of ld.so that never changes.
        unsafe {
            let (name, version) = (c"__pointer_chk_guard", c"GLIBC_PRIVATE");
            let at = libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), version.as_ptr());
            at.cast::<u64>().as_ref().copied().unwrap_or(0)
        }
    });
    pointer ^ guard
}

/// The donor's start routine: see `tls/donor.rs`, which describes its steps and the structure that
/// `start` points to.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn donor_main(start: *mut c_void) -> *mut c_void {
    core::arch::naked_asm!(
        "hint #34", // bti c
        "mov x19, x0",
        "mrs x20, tpidr_el0",
        "str x20, [x19, #8]",
        // rt_sigprocmask(SIG_BLOCK, &mask, NULL, 8)
        "mov x8, #135",
        "mov x0, #0",
        "add x1, x19, #32",
        "mov x2, #0",
        "mov x3, #8",
        "svc #0",
        "ldr x21, [x19, #24]",
        "add x21, x21, x20",
        // An exclusive pair, because a processor of the first version has no atomic OR. Acquire and
        // release, as the C library's own `atomic_fetch_or` of this word.
        "2:",
        "ldaxr w9, [x21]",
        "orr w9, w9, #0x10",
        "stlxr w10, w9, [x21]",
        "cbnz w10, 2b",
        "3:",
        "ldar w9, [x21]",
        "tbz w9, #6, 4f",
        "mov x8, #124", // sched_yield
        "svc #0",
        "b 3b",
        "4:",
        "ldr x9, [x19, #16]",
        "ldr w10, [x19, #4]",
        "str w10, [x20, x9]",
        // set_robust_list(NULL, 24)
        "mov x8, #99",
        "mov x0, #0",
        "mov x1, #24",
        "svc #0",
        // set_tid_address(&word)
        "mov x8, #96",
        "mov x0, x19",
        "svc #0",
        "mov x8, #93", // exit
        "mov x0, #0",
        "svc #0",
        "udf #0",
    )
}

/// Returns why no blocks can be built in this process, whatever the C library is.
pub(crate) fn obstacle() -> Option<&'static str> {
    const SANITIZER: &str =
        "ThreadSanitizer keeps its own state of each kernel thread in thread-local storage";
    if has_thread_sanitizer() {
        return Some(SANITIZER);
    }
    has_shadow_stack().then_some("a guarded control stack (GCS) belongs to each kernel thread")
}

/// Returns whether the calling thread has a guarded control stack.
fn has_shadow_stack() -> bool {
    /// `PR_GET_SHADOW_STACK_STATUS` and `PR_SHADOW_STACK_ENABLE` (linux/prctl.h, Linux 6.13).
    const GET_STATUS: usize = 74;
    const ENABLE: u64 = 1;
    let mut status = 0u64;
    let arguments = [GET_STATUS, (&raw mut status).expose_provenance(), 0, 0, 0, 0];
    // SAFETY: the kernel writes one word, or fails with EINVAL.
    let done = unsafe { crate::system_call(libc::SYS_prctl, arguments) };
    done == 0 && status & ENABLE != 0
}

/// Returns whether this program was built with ThreadSanitizer, whose runtime is then linked in.
fn has_thread_sanitizer() -> bool {
    let at: usize;
    // SAFETY: loads an address from the global offset table, which is null if the weak symbol is
    // undefined.
    unsafe {
        core::arch::asm!(
            // A note, by which `kumi run` finds programs that have the runtime in them.
            ".pushsection .note.kumihimo.runtime, \"a\", %note",
            ".balign 4",
            ".long 9, 0, 1",
            ".asciz \"kumihimo\"",
            ".balign 4",
            ".popsection",
            ".weak __tsan_init",
            "adrp {0}, :got:__tsan_init",
            "ldr {0}, [{0}, :got_lo12:__tsan_init]",
            out(reg) at,
            options(nostack, preserves_flags, readonly)
        );
    }
    at != 0
}

/// The instructions that a replaced name consists of: a jump through the word at `{hook}`. They use
/// x16, which a call may change (AAPCS64: the intra-procedure-call scratch register), and begin
/// with a landing pad.
macro_rules! jump_through_hook {
    () => {
        "hint #34\nadrp x16, {hook}\nldr x16, [x16, :lo12:{hook}]\nbr x16"
    };
}
pub(crate) use jump_through_hook;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn struct_pthread_lies_below_the_thread_pointer() {
        let parts = parts(4096 + 16, 1776).expect("a block");
        assert_eq!((parts.thread.clone(), parts.statics.clone()), (-1776..0, 0..4096 + 16));
        assert_eq!(dtv(&parts, 1776), Some(0));
        assert_eq!(dtv(&parts, 8), None, "the dtv is not in the structure");
    }

    #[test]
    fn block_without_a_tcb_is_refused() {
        assert!(parts(8, 1776).is_none());
    }
}
