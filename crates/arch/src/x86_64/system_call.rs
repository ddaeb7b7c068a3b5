//! System calls that bypass the C library.
//!
//! The program's own calls go through the C library, where [`super::interpose`] replaces what
//! concerns a single thread. The runtime's calls for its kernel threads must not be replaced.

use core::arch::asm;

/// Makes a system call and returns the kernel's result: a value, or a negated error number.
///
/// # Safety
/// The requirements of the system call.
#[inline]
pub unsafe fn system_call(number: i64, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the caller's promise. The kernel changes rax, rcx and r11 only; syscall(2).
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}
