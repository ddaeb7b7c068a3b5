//! Donors: blocks made by the C library itself.
//!
//! A donor is a pthread on a stack of this crate. It ends at once by a bare exit system call, so
//! the C library does not notice its end: the kernel thread is gone and the block stays. Three
//! donors are the models that [`super::template`] compares. If that comparison fails, every
//! microprocess gets a donor of its own.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::glibc::{Calls, Layout, set_word, word};
use super::number;
use crate::lock::Lock;
use crate::machine::thread_block::donor_main;
use crate::signal_mask;

/// Bit of `cancelhandling` (glibc's nptl/descr.h): the thread is exiting. 0x40 in `donor_main` is
/// the mark of a pending set*id.
const EXITING: u32 = 0x10;

/// A block made by pthread_create whose kernel thread has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Donor {
    pub fs: *mut u8,
    /// The stack passed to pthread_attr_setstack.
    pub lo: usize,
    pub size: usize,
}

// SAFETY: a donor only describes memory, which is never freed; code that accesses it names its
// writers.
unsafe impl Send for Donor {}
// SAFETY: as above.
unsafe impl Sync for Donor {}

/// Data exchanged between creator and donor. The start routine uses the offsets.
///
/// The routine ([`donor_main`]) is written in assembly, because it must not use thread-local state,
/// which is being copied, and must not be instrumented by a sanitizer.
///
/// set*id marks every thread on the C library's list, signals it, and waits for its reply. The
/// donor therefore ends in the order of a C library thread:
///
/// 1. It stores its thread pointer, and blocks the signals of `mask`.
/// 2. It sets the exiting bit, so that later set*id calls skip it.
/// 3. It waits until an earlier mark is gone (signal 33 is not blocked).
/// 4. It replaces its ID.
/// 5. It takes the list of robust mutexes away from the kernel, which must not walk it.
/// 6. It has the kernel clear `word` and wake its waiters at the end of the thread, and exits.
#[repr(C)]
struct Start {
    word: AtomicU32,   // 0: becomes 0 when the kernel thread is gone
    tid: u32,          // 4: fake id to put into the block
    fs: usize,         // 8
    tid_offset: isize, // 16
    cancel: isize,     // 24
    mask: u64,         // 32: signals to block
}

/// Creates a donor on the stack [lo, lo + size). The C library puts the block at the stack's top.
/// Blocks the kernel thread until the donor has ended [35-180 us].
///
/// # Safety
/// The memory must be mapped, writable, unused and zero, and must never be unmapped, because the
/// block stays on the C library's list.
pub(super) unsafe fn make(
    calls: &Calls,
    layout: &Layout,
    lo: usize,
    size: usize,
) -> io::Result<Donor> {
    // SAFETY: guaranteed by the caller.
    unsafe { make_with(calls, layout, lo, size, &mut Start::new()) }
}

impl Start {
    const fn new() -> Start {
        Start { word: AtomicU32::new(0), tid: 0, fs: 0, tid_offset: 0, cancel: 0, mask: 0 }
    }
}

unsafe fn make_with(
    calls: &Calls,
    layout: &Layout,
    lo: usize,
    size: usize,
    start: &mut Start,
) -> io::Result<Donor> {
    *start = Start {
        word: AtomicU32::new(1),
        tid: number::next(),
        fs: 0,
        tid_offset: layout.tid,
        cancel: layout.cancel,
        mask: !(1 << 32), // all but signal 33
    };
    let start: *mut Start = start;
    // SAFETY: the structs are valid for the calls. `start` outlives the donor, whose end the loop
    // below awaits.
    unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        check(libc::pthread_attr_init(&mut attr))?;
        // The C library touches no more of the stack than its top.
        let claimed = size.max(least_stack());
        let claimed_lo = (lo + size).wrapping_sub(claimed);
        let set = libc::pthread_attr_setstack(&mut attr, claimed_lo as *mut c_void, claimed);
        let mut id: libc::pthread_t = 0;
        let r = if set == 0 {
            // The new thread inherits the mask, so no handler of the program runs on the donor.
            signal_mask::while_blocked(|| {
                (calls.pthread_create)(&mut id, &attr, donor_main, start.cast())
            })
        } else {
            set
        };
        libc::pthread_attr_destroy(&mut attr);
        check(r)?;
        // Acquire: once the donor's end is visible, so is everything it wrote.
        while (*start).word.load(Ordering::Acquire) != 0 {
            // Not FUTEX_PRIVATE: the kernel's wake-up at a thread's end is a shared one;
            // set_tid_address(2).
            crate::call!(
                libc::SYS_futex,
                (*start).word.as_ptr(),
                libc::FUTEX_WAIT,
                1,
                std::ptr::null::<c_void>(),
            );
        }
        let start = start.read_volatile();
        let fs = start.fs as *mut u8;
        if id as usize != start.fs.wrapping_add_signed(layout.thread.start)
            || start.fs <= lo
            || start.fs + layout.size > lo + size
        {
            return Err(io::Error::other(
                "pthread_create put the thread block at an unexpected address",
            ));
        }
        if claimed != size {
            for offset in layout.thread.clone().step_by(8) {
                match word(fs, offset) as usize {
                    word if word == claimed_lo => set_word(fs, offset, lo as u64),
                    word if word == claimed => set_word(fs, offset, size as u64),
                    _ => {}
                }
            }
        }
        // The block stays on the list, so set*id may mark it again. It then finds no thread with
        // the block's ID and continues.
        (*fs.offset(layout.cancel).cast::<AtomicU32>()).fetch_and(!EXITING, Ordering::Relaxed);
        Ok(Donor { fs, lo, size })
    }
}

/// Creates a donor on a new stack of `size` bytes. All models get the same argument, because the
/// block stores it.
pub(super) fn make_model(calls: &Calls, layout: &Layout, size: usize) -> io::Result<Donor> {
    // SAFETY: a new mapping, which is unmapped only if no thread has started on it.
    unsafe {
        let p = libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
            -1,
            0,
        );
        if p == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::madvise(p, size, libc::MADV_NOHUGEPAGE);
        START_LOCK
            .with(|| make_with(calls, layout, p as usize, size, &mut *START.0.get()))
            .inspect_err(|e| {
                // An error code from the system means that no kernel thread has started on the
                // stack.
                if e.raw_os_error().is_some() {
                    libc::munmap(p, size);
                }
            })
    }
}

struct Shared(UnsafeCell<Start>);
// SAFETY: accessed only under START_LOCK.
unsafe impl Sync for Shared {}

static START: Shared = Shared(UnsafeCell::new(Start::new()));
static START_LOCK: Lock = Lock::new();

/// Returns the least stack that pthread_attr_setstack(3) accepts: 16 KiB on x86_64, 128 KiB on
/// AArch64.
pub(super) fn least_stack() -> usize {
    // SAFETY: sysconf only reads.
    unsafe { libc::sysconf(libc::_SC_THREAD_STACK_MIN) }.cast_unsigned() as usize
}

fn check(r: i32) -> io::Result<()> {
    if r == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(r)) }
}
