//! Code that holds values in one class of registers for a while, and reports their values
//! afterwards.

use core::arch::naked_asm;

/// x0 to x30, without x18, which a platform may use, and x29, by which unwinders walk.
pub const GENERAL: usize = 29;

/// Loads the general registers from `values`, waits, and stores them to `out`. The count lies on
/// the stack, as no register is left for it.
#[unsafe(naked)]
pub unsafe extern "C" fn general(
    values: *const [u64; GENERAL],
    out: *mut [u64; GENERAL],
    spins: u64,
) {
    naked_asm!(
        "stp x29, x30, [sp, #-128]!",
        "stp x19, x20, [sp, #16]", "stp x21, x22, [sp, #32]", "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]", "stp x27, x28, [sp, #80]", "stp x1, x2, [sp, #96]",
        "ldp x1, x2, [x0, #8]", "ldp x3, x4, [x0, #24]", "ldp x5, x6, [x0, #40]",
        "ldp x7, x8, [x0, #56]", "ldp x9, x10, [x0, #72]", "ldp x11, x12, [x0, #88]",
        "ldp x13, x14, [x0, #104]", "ldp x15, x16, [x0, #120]", "ldp x17, x19, [x0, #136]",
        "ldp x20, x21, [x0, #152]", "ldp x22, x23, [x0, #168]", "ldp x24, x25, [x0, #184]",
        "ldp x26, x27, [x0, #200]", "ldp x28, x30, [x0, #216]", "ldr x0, [x0]",
        "2:",
        // x0 is kept on the stack for the moments in which it counts.
        "str x0, [sp, #112]",
        "ldr x0, [sp, #104]", "subs x0, x0, #1", "str x0, [sp, #104]",
        "ldr x0, [sp, #112]",
        "b.ne 2b",
        "str x30, [sp, #120]",
        "ldr x30, [sp, #96]",
        "stp x0, x1, [x30]", "stp x2, x3, [x30, #16]", "stp x4, x5, [x30, #32]",
        "stp x6, x7, [x30, #48]", "stp x8, x9, [x30, #64]", "stp x10, x11, [x30, #80]",
        "stp x12, x13, [x30, #96]", "stp x14, x15, [x30, #112]", "stp x16, x17, [x30, #128]",
        "stp x19, x20, [x30, #144]", "stp x21, x22, [x30, #160]", "stp x23, x24, [x30, #176]",
        "stp x25, x26, [x30, #192]", "stp x27, x28, [x30, #208]",
        "ldr x0, [sp, #120]", "str x0, [x30, #224]",
        "ldp x19, x20, [sp, #16]", "ldp x21, x22, [sp, #32]", "ldp x23, x24, [sp, #48]",
        "ldp x25, x26, [sp, #64]", "ldp x27, x28, [sp, #80]",
        "ldp x29, x30, [sp], #128",
        "ret",
    )
}

/// Holds v0 to v31, with all 128 bits. The ABI's half of v8 to v15 is kept.
#[unsafe(naked)]
pub unsafe extern "C" fn vectors(values: *const [u64; 64], out: *mut [u64; 64], spins: u64) {
    naked_asm!(
        "stp d8, d9, [sp, #-64]!", "stp d10, d11, [sp, #16]",
        "stp d12, d13, [sp, #32]", "stp d14, d15, [sp, #48]",
        ".irp i,0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30",
        "ldr q\\i, [x0, #16*\\i]",
        ".endr",
        ".irp i,1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31",
        "ldr q\\i, [x0, #16*\\i]",
        ".endr",
        "2:", "subs x2, x2, #1", "b.ne 2b",
        ".irp i,0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30",
        "str q\\i, [x1, #16*\\i]",
        ".endr",
        ".irp i,1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31",
        "str q\\i, [x1, #16*\\i]",
        ".endr",
        "ldp d10, d11, [sp, #16]", "ldp d12, d13, [sp, #32]", "ldp d14, d15, [sp, #48]",
        "ldp d8, d9, [sp], #64",
        "ret",
    )
}

/// Holds NZCV, FPCR and FPSR. The wait changes no flag.
#[unsafe(naked)]
pub unsafe extern "C" fn flags(values: *const [u64; 3], out: *mut [u64; 3], spins: u64) {
    naked_asm!(
        "mrs x9, fpcr", "mrs x10, fpsr",
        "ldp x3, x4, [x0]", "ldr x5, [x0, #16]",
        "msr fpcr, x4", "msr fpsr, x5", "msr nzcv, x3",
        "2:", "sub x2, x2, #1", "cbnz x2, 2b",
        "mrs x3, nzcv", "mrs x4, fpcr", "mrs x5, fpsr",
        "msr fpcr, x9", "msr fpsr, x10",
        "stp x3, x4, [x1]", "str x5, [x1, #16]",
        "ret",
    )
}

/// Computes `sum = a + b + 1` for numbers of `count` words, keeping the carry in C throughout.
/// Returns the last carry.
#[unsafe(naked)]
pub unsafe extern "C" fn add(sum: *mut u64, a: *const u64, b: *const u64, count: u64) -> u64 {
    naked_asm!(
        "cmp x3, x3", // C = 1
        "2:",
        "ldr x9, [x1], #8", "ldr x10, [x2], #8",
        "adcs x9, x9, x10",
        "str x9, [x0], #8",
        "sub x3, x3, #1", "cbnz x3, 2b",
        "cset x0, cs",
        "ret",
    )
}

/// Calls `count` with FPCR, and then changes every register that the ABI allows it to change, and
/// FPCR and FPSR.
#[unsafe(naked)]
pub extern "C" fn rude() {
    naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mrs x0, fpcr",
        "bl {count}",
        ".irp i,0,1,2,3,4,5,6,7,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "movi v\\i\\().16b, #255",
        ".endr",
        // The upper halves only: d8 to d15 are the caller's.
        "mov x9, #-1",
        ".irp i,8,9,10,11,12,13,14,15", "mov v\\i\\().d[1], x9", ".endr",
        "mov x9, #0x1c00000", "msr fpcr, x9",
        "mov x9, #0x1f", "msr fpsr, x9",
        "mov x9, #0xf0000000", "msr nzcv, x9",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "mov x\\i, #-1", ".endr",
        "msr fpcr, xzr",
        "ldp x29, x30, [sp], #16",
        "ret",
        count = sym super::count,
    )
}
