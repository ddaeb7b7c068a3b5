//! The instructions of [`system_call`](crate::system_call).

use core::arch::global_asm;

// One place for all of them, so that a thread in one is told from a thread in a system call that
// the program makes itself (`is_in_system_call`). As syscall(2) of the C library, without errno.
global_asm!(
    ".pushsection .text.kumihimo_system_call, \"ax\", %progbits",
    ".p2align 4",
    ".globl kumihimo_system_call",
    ".hidden kumihimo_system_call",
    ".type kumihimo_system_call, %function",
    "kumihimo_system_call:",
    ".cfi_startproc",
    "hint #34", // bti c
    "mov x8, x0",
    "mov x0, x1",
    "mov x1, x2",
    "mov x2, x3",
    "mov x3, x4",
    "mov x4, x5",
    "mov x5, x6",
    "svc #0",
    ".globl kumihimo_system_call_return",
    ".hidden kumihimo_system_call_return",
    "kumihimo_system_call_return:",
    "ret",
    ".cfi_endproc",
    ".size kumihimo_system_call, . - kumihimo_system_call",
    ".popsection",
);

/// Returns false: this architecture has no I/O ports.
pub(crate) fn changes_port_access(_number: libc::c_long) -> bool {
    false
}
