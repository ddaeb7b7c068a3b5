//! Code that holds values in one class of registers for a while, and reports their values
//! afterwards.
//!
//! The wait loops use `dec` or `loop` on one register or one word, so that an injected call most
//! likely interrupts them.

use core::arch::{asm, naked_asm};

/// rax, rbx, rcx, rbp, rsi, rdx, r8..r15, rdi.
pub const GENERAL: usize = 15;

/// Loads all general registers except RSP from `values`, waits, and stores them to `out`.
#[unsafe(naked)]
pub unsafe extern "C" fn general(
    values: *const [u64; GENERAL],
    out: *mut [u64; GENERAL],
    spins: u64,
) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rsi",
        "push rdx",
        "mov rax, [rdi]",
        "mov rbx, [rdi + 8]",
        "mov rcx, [rdi + 16]",
        "mov rbp, [rdi + 24]",
        "mov rsi, [rdi + 32]",
        "mov rdx, [rdi + 40]",
        "mov r8, [rdi + 48]",
        "mov r9, [rdi + 56]",
        "mov r10, [rdi + 64]",
        "mov r11, [rdi + 72]",
        "mov r12, [rdi + 80]",
        "mov r13, [rdi + 88]",
        "mov r14, [rdi + 96]",
        "mov r15, [rdi + 104]",
        "mov rdi, [rdi + 112]",
        "2:",
        "dec qword ptr [rsp]",
        "jnz 2b",
        "push rax",
        "mov rax, [rsp + 16]",
        "mov [rax + 8], rbx",
        "mov [rax + 16], rcx",
        "mov [rax + 24], rbp",
        "mov [rax + 32], rsi",
        "mov [rax + 40], rdx",
        "mov [rax + 48], r8",
        "mov [rax + 56], r9",
        "mov [rax + 64], r10",
        "mov [rax + 72], r11",
        "mov [rax + 80], r12",
        "mov [rax + 88], r13",
        "mov [rax + 96], r14",
        "mov [rax + 104], r15",
        "mov [rax + 112], rdi",
        "pop rcx",
        "mov [rax], rcx",
        "add rsp, 16",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

/// 32 rows of 64 bytes for zmm0 .. zmm31, of which narrower registers use the low part; then k0 ..
/// k7.
pub type Vectors = [u64; 32 * 8 + 8];

/// Holds xmm0 .. xmm15.
#[unsafe(naked)]
pub unsafe extern "C" fn xmm(values: *const Vectors, out: *mut Vectors, spins: u64) {
    naked_asm!(
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "movdqu xmm\\i, [rdi + 64*\\i]",
        ".endr",
        "2:",
        "dec rdx",
        "jnz 2b",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "movdqu [rsi + 64*\\i], xmm\\i",
        ".endr",
        "ret",
    )
}

/// Holds ymm0 .. ymm15; requires AVX.
#[unsafe(naked)]
pub unsafe extern "C" fn ymm(values: *const Vectors, out: *mut Vectors, spins: u64) {
    naked_asm!(
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "vmovdqu ymm\\i, [rdi + 64*\\i]",
        ".endr",
        "2:",
        "dec rdx",
        "jnz 2b",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "vmovdqu [rsi + 64*\\i], ymm\\i",
        ".endr",
        "vzeroupper",
        "ret",
    )
}

/// Holds zmm0 .. zmm31 and k0 .. k7; requires AVX-512 F and BW.
#[unsafe(naked)]
pub unsafe extern "C" fn zmm(values: *const Vectors, out: *mut Vectors, spins: u64) {
    naked_asm!(
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "vmovdqu64 zmm\\i, [rdi + 64*\\i]",
        ".endr",
        ".irp i,0,1,2,3,4,5,6,7",
        "kmovq k\\i, [rdi + 2048 + 8*\\i]",
        ".endr",
        "2:",
        "dec rdx",
        "jnz 2b",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "vmovdqu64 [rsi + 64*\\i], zmm\\i",
        ".endr",
        ".irp i,0,1,2,3,4,5,6,7",
        "kmovq [rsi + 2048 + 8*\\i], k\\i",
        ".endr",
        "vzeroupper",
        "ret",
    )
}

/// State of the x87 unit: the stack from its top, 16 bytes per value of which 10 are significant,
/// then the control word and the status word.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct X87 {
    pub stack: [[u8; 16]; 8],
    pub control: u16,
    pub status: u16,
}

/// Fills the x87 stack from `values` under its control word, waits, and pops the stack into `out`.
#[unsafe(naked)]
pub unsafe extern "C" fn x87(values: *const X87, out: *mut X87, spins: u64) {
    naked_asm!(
        "fninit",
        ".irp i,7,6,5,4,3,2,1,0",
        "fld tbyte ptr [rdi + 16*\\i]",
        ".endr",
        "fldcw [rdi + 128]",
        "2:",
        "dec rdx",
        "jnz 2b",
        "fnstcw [rsi + 128]",
        "fnstsw [rsi + 130]",
        ".irp i,0,1,2,3,4,5,6,7",
        "fstp tbyte ptr [rsi + 16*\\i]",
        ".endr",
        "fninit",
        "ret",
    )
}

/// Holds mm0 .. mm7.
#[unsafe(naked)]
pub unsafe extern "C" fn mmx(values: *const [u64; 8], out: *mut [u64; 8], spins: u64) {
    naked_asm!(
        ".irp i,0,1,2,3,4,5,6,7",
        "movq mm\\i, [rdi + 8*\\i]",
        ".endr",
        "2:",
        "dec rdx",
        "jnz 2b",
        ".irp i,0,1,2,3,4,5,6,7",
        "movq [rsi + 8*\\i], mm\\i",
        ".endr",
        "emms",
        "ret",
    )
}

/// Holds MXCSR; returns its value after the wait.
#[unsafe(naked)]
pub unsafe extern "C" fn mxcsr(value: u32, spins: u64) -> u32 {
    naked_asm!(
        "push rdi",
        "stmxcsr [rsp + 4]",
        "ldmxcsr [rsp]",
        "2:",
        "dec rsi",
        "jnz 2b",
        "stmxcsr [rsp]",
        "mov eax, [rsp]",
        "ldmxcsr [rsp + 4]",
        "pop rdi",
        "ret",
    )
}

/// A leaf function that keeps sixteen words in its red zone; returns the bits that changed.
#[unsafe(naked)]
pub unsafe extern "C" fn red_zone(seed: u64, spins: u64) -> u64 {
    naked_asm!(
        ".irp i,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
        "lea rax, [rdi + \\i]",
        "mov [rsp - 8*\\i], rax",
        ".endr",
        "2:",
        "dec rsi",
        "jnz 2b",
        "xor eax, eax",
        ".irp i,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
        "lea rcx, [rdi + \\i]",
        "xor rcx, [rsp - 8*\\i]",
        "or rax, rcx",
        ".endr",
        "ret",
    )
}

/// Sets the flags, waits with `loop`, which changes no flags, and returns them.
#[unsafe(naked)]
pub unsafe extern "C" fn flags(value: u64, spins: u64) -> u64 {
    naked_asm!(
        "mov rcx, rsi",
        "push rdi",
        "popfq",
        "2:",
        "loop 2b",
        "pushfq",
        "pop rax",
        "push 0x202",
        "popfq",
        "ret",
    )
}

/// Computes `sum = a + b + 1` for numbers of `count` words, keeping the carry in CF throughout.
/// Returns the last carry.
#[unsafe(naked)]
pub unsafe extern "C" fn add(sum: *mut u64, a: *const u64, b: *const u64, count: u64) -> u64 {
    naked_asm!(
        "stc",
        "2:",
        "mov rax, [rsi]",
        "adc rax, [rdx]",
        "mov [rdi], rax",
        "lea rsi, [rsi + 8]",
        "lea rdx, [rdx + 8]",
        "lea rdi, [rdi + 8]",
        "dec rcx",
        "jnz 2b",
        "setc al",
        "movzx eax, al",
        "ret",
    )
}

/// Copies with `rep movsb`, from the end with DF = 1 if `backwards`.
pub fn copy(to: &mut [u8], from: &[u8], backwards: bool) {
    assert_eq!(to.len(), from.len());
    let (n, last) = (to.len(), if backwards { to.len() - 1 } else { 0 });
    // SAFETY: both slices have n bytes; DF is clear again at the end.
    unsafe {
        let (d, s) = (to.as_mut_ptr().add(last), from.as_ptr().add(last));
        if backwards {
            asm!("std", "rep movsb", "cld", inout("rcx") n => _, inout("rdi") d => _, inout("rsi") s => _);
        } else {
            asm!("rep movsb", inout("rcx") n => _, inout("rdi") d => _, inout("rsi") s => _);
        }
    }
}

/// Fills with `rep stosb`, from the end with DF = 1 if `backwards`.
pub fn fill(to: &mut [u8], byte: u8, backwards: bool) {
    let (n, last) = (to.len(), if backwards { to.len() - 1 } else { 0 });
    // SAFETY: the slice has n bytes; DF is clear again at the end.
    unsafe {
        let d = to.as_mut_ptr().add(last);
        if backwards {
            asm!("std", "rep stosb", "cld", inout("rcx") n => _, inout("rdi") d => _, in("al") byte);
        } else {
            asm!("rep stosb", inout("rcx") n => _, inout("rdi") d => _, in("al") byte);
        }
    }
}

/// The state in which an injected call started.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Start {
    /// FNSTENV's image.
    pub x87: [u32; 7],
    pub mxcsr: u32,
    pub flags: u64,
    /// RSP modulo 16 before the call.
    pub misaligned: u64,
}

/// The vector registers that [`rude`] overwrites: 0 xmm, 1 ymm, 2 zmm and k.
pub static WIDTH: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// Upcall that calls `count` and then changes every register that the ABI allows it to change. It
/// also changes state that the ABI protects: a full x87 stack, other control words, DF and AC set.
#[unsafe(naked)]
pub extern "C" fn rude() {
    naked_asm!(
        "sub rsp, 56",
        "pushfq", "pop qword ptr [rsp + 32]",
        "fnstenv [rsp]", "stmxcsr [rsp + 28]",
        "lea rax, [rsp + 64]", "and eax, 15", "mov [rsp + 40], rax",
        "mov rdi, rsp",
        "call {count}",
        "mov eax, [rip + {width}]",
        "cmp eax, 1", "jb 3f", "je 4f",
        "vpternlogd zmm0, zmm0, zmm0, 255",
        ".irp i,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31",
        "vmovdqa64 zmm\\i, zmm0", ".endr",
        ".irp i,0,1,2,3,4,5,6,7", "kxnorq k\\i, k\\i, k\\i", ".endr",
        "jmp 5f",
        "4:",
        "vcmpps ymm0, ymm0, ymm0, 15",
        ".irp i,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15", "vmovaps ymm\\i, ymm0", ".endr",
        "jmp 5f",
        "3:",
        ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15", "pcmpeqd xmm\\i, xmm\\i", ".endr",
        "5:",
        "fninit",
        ".rept 8", "fldpi", ".endr",
        "mov dword ptr [rsp], 0xfbf", "fldcw [rsp]", // round to zero, single precision
        "mov dword ptr [rsp], 0xffc0", "ldmxcsr [rsp]", // flush, round to zero, denormals are zero
        "add rsp, 56",
        ".irp r,rax,rcx,rdx,rsi,rdi,r8,r9,r10,r11", "mov \\r, -1", ".endr",
        "push 0x40cd5", "popfq",
        "ret",
        count = sym super::count,
        width = sym WIDTH,
    )
}
