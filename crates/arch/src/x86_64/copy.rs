//! Copies of memory that another thread or process may write at the same time.

use core::arch::asm;

/// Copies `len` bytes. `rep movsb` in assembly: its accesses are outside the language's memory
/// model, as those of the other process are. The compiler has to assume of them whatever Rust code
/// could do, for instance a loop over relaxed atomic bytes.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`, and the two do not overlap. One of them
/// may be shared memory that others write.
#[inline]
pub unsafe fn shared(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: reads and writes what the caller vouches for, and memory only; the direction flag is
    // clear by the ABI. Races: see above.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
    }
}
