//! The instructions of [`system_call`](crate::system_call).

use core::arch::global_asm;

// One place for all of them, so that a thread in one is told from a thread in a system call that
// the program makes itself (`is_in_system_call`). As syscall(2) of the C library, without errno.
global_asm!(
    ".pushsection .text.kumihimo_system_call,\"ax\",@progbits",
    ".p2align 4",
    ".globl kumihimo_system_call",
    ".hidden kumihimo_system_call",
    ".type kumihimo_system_call,@function",
    "kumihimo_system_call:",
    ".cfi_startproc",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, [rsp + 8]",
    "syscall",
    ".globl kumihimo_system_call_return",
    ".hidden kumihimo_system_call_return",
    "kumihimo_system_call_return:",
    "ret",
    ".cfi_endproc",
    ".size kumihimo_system_call, . - kumihimo_system_call",
    ".popsection",
);

/// Whether the system call changes the calling kernel thread's access to I/O ports.
pub(crate) fn changes_port_access(number: libc::c_long) -> bool {
    matches!(number, libc::SYS_iopl | libc::SYS_ioperm)
}
