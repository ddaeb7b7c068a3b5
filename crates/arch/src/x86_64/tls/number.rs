//! The number by which the C library tells threads apart: the thread ID in the block, which locks
//! store as their owner.

use super::Tls;
use crate::cpu::fs_base;

impl Tls {
    /// Returns the number of the calling thread. That of a microprocess is no ID of a kernel thread.
    /// 0 if the layout of blocks is unknown.
    #[inline]
    pub fn number(&self) -> u32 {
        // SAFETY: the word lies in the caller's block, and only the caller changes it.
        self.inner.map_or(0, |inner| unsafe {
            (fs_base() as *const u8).offset(inner.layout.tid).cast::<u32>().read_volatile()
        })
    }

    /// Runs `f` with another number, which lasts for its calls of the C library only. For locks that
    /// the kernel or another process takes part in: they hold the ID of a kernel thread.
    ///
    /// # Safety
    /// `number` is the ID of the calling kernel thread, which `f` does not leave.
    pub unsafe fn with_number<R>(&self, number: u32, f: impl FnOnce() -> R) -> R {
        let Some(inner) = self.inner else { return f() };
        let own = self.number();
        // SAFETY: as above.
        let set = |number: u32| unsafe {
            (fs_base() as *mut u8).offset(inner.layout.tid).cast::<u32>().write_volatile(number);
        };
        set(number);
        let result = f();
        set(own);
        result
    }
}
