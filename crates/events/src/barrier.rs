//! An asymmetric memory barrier: free on the side that runs all the time, dear on the side that runs seldom.
//!
//! [`light`] orders this kernel thread's earlier store before its later load *as seen by a thread that calls [`heavy`]*. Where
//! membarrier(2) MEMBARRIER_CMD_PRIVATE_EXPEDITED is there (Linux 4.14), `light` is a compiler barrier and `heavy` makes every
//! running kernel thread of the process execute a full one; elsewhere both are full fences.

use crate::atomic::{Ordering, fence};

#[cfg(not(loom))]
mod membarrier {
    use std::sync::OnceLock;

    const CMD_PRIVATE_EXPEDITED: i64 = 1 << 3;
    const CMD_REGISTER_PRIVATE_EXPEDITED: i64 = 1 << 4;

    fn call(command: i64) -> bool {
        // SAFETY: membarrier takes integers only.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0i64, 0i64) == 0 }
    }

    /// Whether this process may use it. Registration is idempotent, is inherited by fork and lost at exec.
    pub(super) fn available() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| call(CMD_REGISTER_PRIVATE_EXPEDITED))
    }

    pub(super) fn everywhere() {
        let done = call(CMD_PRIVATE_EXPEDITED);
        assert!(
            done,
            "kumihimo: membarrier(2) was registered and then refused; a seccomp filter installed after start?"
        );
    }
}

/// Whether [`heavy`] does all the work, so that the cheap side may be a compiler barrier.
#[cfg(not(loom))]
pub fn is_asymmetric() -> bool {
    membarrier::available()
}

/// The cheap side: between a store and a load that must not pass it.
#[inline(always)]
pub fn light() {
    #[cfg(not(loom))]
    if membarrier::available() {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        return;
    }
    fence(Ordering::SeqCst);
}

/// The dear side. Blocks the kernel thread for the interrupts it sends (1-2 us).
pub fn heavy() {
    #[cfg(not(loom))]
    if membarrier::available() {
        membarrier::everywhere();
        return;
    }
    fence(Ordering::SeqCst);
}
