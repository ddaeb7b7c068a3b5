//! The context switch, and access to the thread pointer and to the kernel thread's record.
//!
//! TPIDR_EL0 holds the address of the running microprocess's TLS block. User code writes it by one
//! instruction. The address of the record of the kernel thread that carries the microprocess is in
//! a word of that block: see `record.rs`. The functions keep the names of the x86_64 reference,
//! where FS and GS have these roles.
//!
//! A context is one word, the stack pointer. The state that the ABI requires a callee to preserve
//! (x19 to x30, d8 to d15 and FPCR: AAPCS64, 6.1) is on the stack above it. A switch ends in a
//! branch to a register instead of `ret`: the processor's return stack describes the old stack, so
//! a `ret` would always be mispredicted.

use core::arch::{asm, naked_asm};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::LocalKey;

pub use super::record::is_indivisible;

/// A suspended flow of control, as its stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Context(*mut u8);

impl Context {
    /// The null context. Switching to it faults.
    pub const NULL: Context = Context(core::ptr::null_mut());

    /// Prepares a context that calls `entry(argument)` on the stack below `top` when first resumed.
    ///
    /// FPCR starts at 0, as on a new kernel thread.
    ///
    /// # Safety
    /// `top` is 16-aligned, with at least 128 writable, unused bytes below it. `entry` never
    /// returns.
    pub unsafe fn prepare(
        top: *mut u8,
        entry: extern "C" fn(*mut u8) -> !,
        argument: *mut u8,
    ) -> Context {
        // In the order in which `leave_and_continue` loads the words.
        let frame: [u64; 6] = [
            0,                         // FPCR
            argument as u64,           // x19
            entry as *const () as u64, // x29
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

/// Bytes that a switch saves at the context's stack pointer: FPCR, x19, x29 and address. See
/// [`Context::prepare`].
pub const SAVED: usize = 32;

/// First instruction of a new context: x19 = argument, x29 = entry (see [`Context::prepare`]).
///
/// A naked function has no unwind table, so every backtrace ends at it. x29 = 0 ends a chain of
/// frame records.
#[unsafe(naked)]
unsafe extern "C" fn first_step() {
    // The switch branches here by a register other than x16 and x17: a landing pad for jumps.
    naked_asm!(
        "hint #36", // bti j
        "mov x0, x19",
        "mov x1, x29",
        "mov x29, xzr",
        "mov x30, xzr",
        "blr x1",
        "udf #0",
    )
}

/// Performs a switch: saves the caller's context in `*save`, resumes `to`, and continues at label 2
/// when another switch resumes the saved context.
///
/// The code is inline, as on x86_64 [measured there: docs/src/decisions/001-inline-switch.md].
/// Everything except x19 and x29, which inline assembly may not clobber, is declared clobbered, so
/// the compiler saves the live registers, among them d8 to d15. FPCR is written only if it differs,
/// because the write waits for all earlier floating-point instructions.
macro_rules! leave_and_continue {
    ($save:expr, $to:expr, $($set_tp:literal,)* ; $($operand:tt)*) => {
        asm!(
            "adr x9, 2f",
            "mrs x10, fpcr",
            "stp x10, x19, [sp, #-32]!",
            "stp x29, x9, [sp, #16]",
            "mov x11, sp",
            "str x11, [x0]",
            "mov sp, x1",
            "ldp x11, x19, [sp]",
            "ldp x29, x9, [sp, #16]",
            "add sp, sp, #32",
            "cmp x10, x11",
            "b.eq 3f",
            "msr fpcr, x11",
            "3:",
            $($set_tp,)*
            "br x9",
            "2:",
            "hint #36", // bti j
            inout("x0") $save => _,
            inout("x1") $to.0 => _,
            $($operand)*
            out("x20") _, out("x21") _, out("x22") _, out("x23") _, out("x24") _, out("x25") _,
            out("x26") _, out("x27") _, out("x28") _,
            clobber_abi("C"),
        )
    };
}

/// Saves the caller's context in `*save` and resumes `to` with the thread pointer `fs`.
///
/// Returns when another switch resumes the saved context.
///
/// # Safety
/// `to` was prepared or saved and has not been resumed since; `fs` is the thread pointer it runs
/// with. No other reference into `*save` exists. The saved context must not be resumed before this
/// kernel thread has left it.
#[inline(always)]
pub unsafe fn switch_fs(save: *mut Context, to: Context, fs: usize) {
    // SAFETY: upheld by the caller. The new block gets the address of this kernel thread's record
    // before a handler can run with it.
    unsafe {
        leave_and_continue!(
            save, to,
            "mrs x11, tpidr_el0",
            "adrp x12, :gottprel:kumihimo_record",
            "ldr x12, [x12, :gottprel_lo12:kumihimo_record]",
            "ldr x11, [x11, x12]",
            "str x11, [x2, x12]",
            "msr tpidr_el0, x2",
            ; inout("x2") fs => _,
        )
    }
}

/// Switches as [`switch_fs`] does, but keeps the thread pointer. Both sides must run with the same
/// one (lean microprocesses).
///
/// # Safety
/// Same requirements as [`switch_fs`]; `to` runs with the thread pointer that is set now.
#[inline(always)]
pub unsafe fn switch_same(save: *mut Context, to: Context) {
    // SAFETY: upheld by the caller.
    unsafe { leave_and_continue!(save, to, ; out("x2") _,) }
}

/// The same as [`switch_fs`]: this architecture needs no system call to set the thread pointer.
///
/// # Safety
/// Same requirements as [`switch_fs`].
#[inline(always)]
pub unsafe fn switch_prctl(save: *mut Context, to: Context, fs: usize) {
    // SAFETY: upheld by the caller.
    unsafe { switch_fs(save, to, fs) }
}

/// Returns true: the thread pointer is written without a system call on every processor.
pub fn fsgsbase() -> bool {
    true
}

/// How a switch sets the thread pointer, and where the record's address is, for reports.
pub const BASES: &str = "msr tpidr_el0, and a word of each block for the record";

/// Returns the thread pointer, which is the address of the running TLS block.
#[inline]
pub fn fs_base() -> usize {
    let fs: usize;
    // SAFETY: reads a register. Without `pure`, the compiler does not move the block across a
    // switch, after which a lean microprocess has another thread pointer.
    unsafe { asm!("mrs {}, tpidr_el0", out(reg) fs, options(nomem, nostack, preserves_flags)) };
    fs
}

/// Sets the thread pointer. The new block gets the address of the kernel thread's record.
///
/// # Safety
/// `fs` is a complete TLS block on which no other thread runs, and the caller's frame holds no
/// address into the old block.
pub unsafe fn set_fs_base(fs: usize) {
    // SAFETY: the caller's promise. The word of the new block is written before the block is used.
    unsafe {
        asm!(
            "mrs {record}, tpidr_el0",
            "adrp {offset}, :gottprel:kumihimo_record",
            "ldr {offset}, [{offset}, :gottprel_lo12:kumihimo_record]",
            "ldr {record}, [{record}, {offset}]",
            "str {record}, [{fs}, {offset}]",
            "msr tpidr_el0, {fs}",
            fs = in(reg) fs,
            record = out(reg) _,
            offset = out(reg) _,
            options(nostack, preserves_flags)
        );
    };
}

/// Stores the address of this kernel thread's record in the running block; 0 means none.
///
/// # Safety
/// The record outlives the kernel thread's use of [`gs_word`].
pub unsafe fn set_gs_base(record: usize) {
    // SAFETY: the word is this module's, in the running block.
    unsafe {
        asm!(
            "mrs {tp}, tpidr_el0",
            "adrp {offset}, :gottprel:kumihimo_record",
            "ldr {offset}, [{offset}, :gottprel_lo12:kumihimo_record]",
            "str {record}, [{tp}, {offset}]",
            record = in(reg) record,
            tp = out(reg) _,
            offset = out(reg) _,
            options(nostack, preserves_flags)
        );
    };
}

/// Returns the address of the record of the calling kernel thread, or 0. Async-signal-safe.
///
/// A call that is injected between two of the instructions does no harm: the word belongs to the
/// block, and each switch to it stores the present address.
#[must_use]
pub fn gs_base() -> usize {
    let record: usize;
    // SAFETY: reads the word of the running block.
    unsafe {
        asm!(
            "mrs {record}, tpidr_el0",
            "adrp {offset}, :gottprel:kumihimo_record",
            "ldr {offset}, [{offset}, :gottprel_lo12:kumihimo_record]",
            "ldr {record}, [{record}, {offset}]",
            record = out(reg) record,
            offset = out(reg) _,
            options(nostack, preserves_flags, readonly)
        );
    };
    record
}

/// Returns the word at byte `OFFSET` of the calling kernel thread's record.
///
/// The read is volatile: after a switch the same code runs on another kernel thread, so the
/// compiler must not cache the value. It is indivisible: see `record.rs`.
///
/// # Safety
/// [`set_gs_base`] was called on this kernel thread with a record that has a word at `OFFSET`.
/// Faults if the address is 0.
#[inline(always)]
pub unsafe fn gs_word<const OFFSET: usize>() -> *mut u8 {
    // SAFETY: upheld by the caller.
    std::ptr::with_exposed_provenance_mut(unsafe { gs_load64::<OFFSET>() } as usize)
}

/// Returns the 64-bit value at byte `OFFSET` of the calling kernel thread's record.
///
/// Volatile and indivisible like [`gs_word`]. One aligned load is never torn (Arm ARM, B2.2.1,
/// single-copy atomicity). It orders no other access.
///
/// # Safety
/// Same requirements as [`gs_word`], with an aligned 64-bit value at `OFFSET`. Other kernel threads
/// write the value only atomically.
#[inline(always)]
pub unsafe fn gs_load64<const OFFSET: usize>() -> u64 {
    let value: u64;
    // SAFETY: the caller guarantees that the record is valid. Without `pure`, the compiler does not
    // merge the block or move it across calls. The function uses no stack.
    unsafe {
        asm!(
            "bl kumihimo_record_load64",
            inout("x9") OFFSET => value,
            out("x10") _, out("x16") _, out("x17") _, out("x30") _,
            options(nostack, preserves_flags)
        );
    };
    value
}

/// Returns the 32-bit value at byte `OFFSET` of the calling kernel thread's record. See
/// [`gs_load64`].
///
/// # Safety
/// Same requirements as [`gs_load64`], with an aligned 32-bit value.
#[inline(always)]
pub unsafe fn gs_load32<const OFFSET: usize>() -> u32 {
    let value: u64;
    // SAFETY: as in `gs_load64`.
    unsafe {
        asm!(
            "bl kumihimo_record_load32",
            inout("x9") OFFSET => value,
            out("x10") _, out("x16") _, out("x17") _, out("x30") _,
            options(nostack, preserves_flags)
        );
    };
    value as u32
}

/// Increments the 32-bit counter at byte `OFFSET` of the calling kernel thread's record, with
/// wrap-around.
///
/// The increment is indivisible for injected calls (`record.rs`): the counter is always that of the
/// kernel thread that carries the caller at that moment. A signal handler on that thread may run
/// between its load and its store, and leaves the counter as it found it.
///
/// The increment is not atomic with respect to other kernel threads. The compiler moves no memory
/// access across it; the processor may reorder it with accesses to other addresses, of which no
/// handler on the same kernel thread is aware (Arm ARM, B2.3: program order within a PE).
///
/// # Safety
/// Same requirements as [`gs_load32`]. Only this kernel thread, including its signal handlers,
/// writes the counter; other threads at most read it atomically.
#[inline(always)]
pub unsafe fn gs_inc32<const OFFSET: usize>() {
    // SAFETY: upheld by the caller.
    unsafe { add32::<OFFSET>(1) };
}

/// Decrements the 32-bit counter at byte `OFFSET` of the calling kernel thread's record, with
/// wrap-around. Returns whether it became zero.
///
/// The decrement is indivisible, as in [`gs_inc32`]. The caller may already run on another kernel
/// thread when it uses the result.
///
/// # Safety
/// Same requirements as [`gs_inc32`].
#[inline(always)]
pub unsafe fn gs_dec32<const OFFSET: usize>() -> bool {
    // SAFETY: upheld by the caller.
    unsafe { add32::<OFFSET>(u32::MAX) == 0 }
}

/// Adds to the counter at byte `OFFSET`, and returns its new value.
///
/// # Safety
/// Same requirements as [`gs_inc32`].
#[inline(always)]
unsafe fn add32<const OFFSET: usize>(step: u32) -> u32 {
    let value: u64;
    // SAFETY: as in `gs_load64`; the counter belongs to this kernel thread.
    unsafe {
        asm!(
            "bl kumihimo_record_add32",
            inout("x9") OFFSET => value,
            inout("x17") u64::from(step) => _,
            out("x10") _, out("x16") _, out("x30") _,
            options(nostack, preserves_flags)
        );
    };
    value as u32
}

/// Reads a thread-local variable of the present kernel thread or microprocess.
///
/// Out of line: in one function, the compiler computes the address of a thread-local variable once,
/// and a lean microprocess has another thread pointer after each switch. On x86_64 each access
/// reads FS anew.
#[inline(never)]
pub fn read_local<T: Copy>(variable: &'static LocalKey<Cell<T>>) -> T {
    variable.get()
}

/// Returns the size of a page in bytes: 4, 16 or 64 KiB, as the kernel was built.
#[inline]
#[must_use]
pub fn page_size() -> usize {
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: every thread that asks the system stores the same value.
    match BYTES.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: getauxval only reads the auxiliary vector.
            let bytes = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
            BYTES.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// Returns the bytes that a preempted microprocess needs on its stack for its registers: a copy of
/// the signal frame with all extended state. The kernel reports the largest size; qemu-user does
/// not.
pub fn extended_state_bytes() -> usize {
    const SVE_GET_VL: usize = 51;
    // SAFETY: getauxval only reads the auxiliary vector; it returns 0 for an unknown key.
    let frame = unsafe {
        libc::getauxval(51 /* AT_MINSIGSTKSZ */)
    } as usize;
    // SAFETY: prctl(2) with this option returns the vector length, or an error without SVE.
    let vector = unsafe { crate::system_call(libc::SYS_prctl, [SVE_GET_VL, 0, 0, 0, 0, 0]) };
    let vector = usize::try_from(vector).map_or(0, |found| found & 0xffff);
    frame.max(super::signal_frame::largest(vector))
}

/// Returns 0: protection keys are not compared here.
pub(crate) fn protection_keys() -> u32 {
    0
}

/// Returns false: POR_EL0 is not kept by a switch, so no microprocess may change it.
///
/// # Safety
/// No requirements.
pub(crate) unsafe fn set_protection_key(_key: u32, _rights: u32) -> bool {
    false
}

/// Prefetches a cache line without waiting for it. Any address is allowed, because a prefetch never
/// faults.
#[inline(always)]
pub fn prefetch(line: *const u8) {
    // SAFETY: a prefetch never faults and changes nothing.
    unsafe {
        asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    };
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
mod tests;
