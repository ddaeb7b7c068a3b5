//! Contexts, FS and GS on a machine where each microprocess is a kernel thread.
//!
//! There is no context switch. The address of the kernel thread's record, which x86_64 keeps in GS,
//! is an ordinary thread-local variable, because no code moves to another kernel thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::LocalKey;

thread_local! {
    /// The address of this kernel thread's record, or 0.
    static RECORD: Cell<usize> = const { Cell::new(0) };
}

/// A suspended flow of control. Only [`Context::NULL`] exists on this architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Context(*mut u8);

impl Context {
    /// The null context.
    pub const NULL: Context = Context(core::ptr::null_mut());

    /// Aborts the process, because a microprocess is a kernel thread on this architecture.
    ///
    /// # Safety
    /// No requirements; the function never returns.
    pub unsafe fn prepare(_: *mut u8, _: extern "C" fn(*mut u8) -> !, _: *mut u8) -> Context {
        no_switch()
    }

    /// Returns null.
    pub fn stack_pointer(self) -> *mut u8 {
        self.0
    }
}

/// Placeholder for the first instruction of a context; never called.
pub const FIRST_STEP: unsafe extern "C" fn() = first_step;

/// Bytes that a switch saves: 0.
pub const SAVED: usize = 0;

unsafe extern "C" fn first_step() {}

#[cold]
fn no_switch() -> ! {
    eprintln!("kumihimo: aborting: context switches are not available on this architecture");
    std::process::abort()
}

/// Aborts the process.
///
/// # Safety
/// No requirements; the function never returns.
pub unsafe fn switch_same(_: *mut Context, _: Context) {
    no_switch()
}

/// Aborts the process.
///
/// # Safety
/// No requirements; the function never returns.
pub unsafe fn switch_fs(_: *mut Context, _: Context, _: usize) {
    no_switch()
}

/// Aborts the process.
///
/// # Safety
/// No requirements; the function never returns.
pub unsafe fn switch_prctl(_: *mut Context, _: Context, _: usize) {
    no_switch()
}

/// Returns false.
pub fn fsgsbase() -> bool {
    false
}

/// How a switch sets the thread pointer, for reports.
pub const BASES: &str = "none";

/// Returns 0: the thread pointer belongs to the C library on this architecture.
pub fn fs_base() -> usize {
    0
}

/// Does nothing.
///
/// # Safety
/// No requirements.
pub unsafe fn set_fs_base(_: usize) {}

/// Sets the address of the calling kernel thread's record; 0 means none.
///
/// # Safety
/// The record outlives the kernel thread's use of [`gs_word`] and the other `gs_` functions.
pub unsafe fn set_gs_base(record: usize) {
    RECORD.set(record);
}

/// Returns the address set by [`set_gs_base`] on the calling kernel thread, or 0.
/// Async-signal-safe.
#[must_use]
pub fn gs_base() -> usize {
    RECORD.get()
}

#[inline(always)]
fn at<T>(offset: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(RECORD.get() + offset)
}

/// Returns the word at byte `OFFSET` of the calling kernel thread's record.
///
/// # Safety
/// [`set_gs_base`] was called on this kernel thread with a record that has a word there.
#[inline(always)]
pub unsafe fn gs_word<const OFFSET: usize>() -> *mut u8 {
    // SAFETY: upheld by the caller.
    unsafe { at::<*mut u8>(OFFSET).read_volatile() }
}

/// Returns the 64-bit value at byte `OFFSET` of the record, in one untorn read.
///
/// # Safety
/// Same requirements as [`gs_word`], with an aligned 64-bit value.
#[inline(always)]
pub unsafe fn gs_load64<const OFFSET: usize>() -> u64 {
    // SAFETY: upheld by the caller.
    unsafe { AtomicU64::from_ptr(at(OFFSET)) }.load(Ordering::Relaxed)
}

/// Returns the 32-bit value at byte `OFFSET` of the record.
///
/// # Safety
/// Same requirements as [`gs_word`], with an aligned 32-bit value.
#[inline(always)]
pub unsafe fn gs_load32<const OFFSET: usize>() -> u32 {
    // SAFETY: upheld by the caller.
    unsafe { AtomicU32::from_ptr(at(OFFSET)) }.load(Ordering::Relaxed)
}

/// Increments the 32-bit counter at byte `OFFSET` of the record, with wrap-around.
///
/// # Safety
/// Same requirements as [`gs_load32`].
#[inline(always)]
pub unsafe fn gs_inc32<const OFFSET: usize>() {
    // SAFETY: upheld by the caller.
    unsafe { AtomicU32::from_ptr(at(OFFSET)) }.fetch_add(1, Ordering::AcqRel);
}

/// Decrements the 32-bit counter at byte `OFFSET`, with wrap-around. Returns whether it became
/// zero.
///
/// # Safety
/// Same requirements as [`gs_load32`].
#[inline(always)]
pub unsafe fn gs_dec32<const OFFSET: usize>() -> bool {
    // SAFETY: upheld by the caller.
    unsafe { AtomicU32::from_ptr(at(OFFSET)) }.fetch_sub(1, Ordering::AcqRel) == 1
}

/// Returns false: no call is injected on this architecture.
#[must_use]
pub fn is_indivisible(_: usize) -> bool {
    false
}

/// Reads a thread-local variable of the calling kernel thread.
#[inline(always)]
pub fn read_local<T: Copy>(variable: &'static LocalKey<Cell<T>>) -> T {
    variable.get()
}

/// Returns the size of a page in bytes.
#[must_use]
pub fn page_size() -> usize {
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: every thread that asks the system stores the same value.
    match BYTES.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf only reads.
            let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned() as usize;
            BYTES.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// Returns 0: the size of a signal frame (`AT_MINSIGSTKSZ`) includes the extended registers.
pub fn extended_state_bytes() -> usize {
    0
}

/// Returns 0: protection keys are not compared here.
pub(crate) fn protection_keys() -> u32 {
    0
}

/// Does nothing.
#[inline(always)]
pub fn prefetch(_: *const u8) {}

/// Calls futex(2) without a timeout. Preserves errno.
///
/// # Safety
/// `word` lives as long as the call; `operation` needs no further arguments.
pub(crate) unsafe fn futex(word: *const u32, operation: i32, value: u32) {
    // SAFETY: upheld by the caller; errno belongs to the calling thread.
    unsafe {
        let errno = *libc::__errno_location();
        libc::syscall(libc::SYS_futex, word, operation, value, std::ptr::null::<libc::timespec>());
        *libc::__errno_location() = errno;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[repr(C)]
    struct Record {
        this: usize,
        wide: u64,
        narrow: u32,
        count: u32,
    }

    #[test]
    fn each_kernel_thread_reads_its_own_record() {
        let mut record = Record { this: 7, wide: 0x1122_3344_5566_7788, narrow: 9, count: 0 };
        // SAFETY: the record outlives its use, and only this thread uses it.
        unsafe {
            set_gs_base((&raw mut record).expose_provenance());
            assert_eq!(gs_word::<0>().addr(), 7);
            assert_eq!(gs_load64::<{ offset_of!(Record, wide) }>(), 0x1122_3344_5566_7788);
            assert_eq!(gs_load32::<{ offset_of!(Record, narrow) }>(), 9);
            const COUNT: usize = offset_of!(Record, count);
            gs_inc32::<COUNT>();
            gs_inc32::<COUNT>();
            assert!(!gs_dec32::<COUNT>());
            assert!(gs_dec32::<COUNT>());
            assert_eq!(std::thread::spawn(gs_base).join().expect("no panic"), 0);
            set_gs_base(0);
        }
    }
}
