//! An asymmetric memory barrier: free on the side that runs all the time, dear on the side that
//! runs seldom.
//!
//! [`light`] orders this kernel thread's earlier store before its later load *as seen by a thread
//! that calls [`heavy`]*. `light` is a compiler barrier; `heavy` makes every kernel thread of the
//! process execute a full one, in the first way that the machine allows:
//!
//! 1. membarrier(2), MEMBARRIER_CMD_PRIVATE_EXPEDITED (Linux 4.14): an interrupt to each CPU
//!    that runs one of them;
//! 2. where that is refused: the caller goes to each CPU in turn (sched_setaffinity(2)). A
//!    kernel thread that ran there has left it for the caller, and leaving a CPU is a full barrier;
//!    one that moved to another CPU meanwhile has left one too.
//!
//! A full fence on both sides would do as well for a writer of `light`, but not for
//! [`Slot::enter`](crate::Slot::enter), which has none. Changing the page tables is no way: where
//! the CPU can flush others' (INVLPGB), nothing interrupts them.

use crate::loom::atomic::{self, Ordering, fence};

pub use real::{Barrier, probe};

mod real {
    use std::io;
    use std::sync::OnceLock;

    use crate::report::unavailable::Unavailable;

    const CMD_PRIVATE_EXPEDITED: i64 = 1 << 3;
    const CMD_REGISTER_PRIVATE_EXPEDITED: i64 = 1 << 4;

    /// How [`heavy`](super::heavy) reaches the other kernel threads.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Barrier {
        /// membarrier(2): 1-2 us.
        Membarrier,
        /// The caller runs on each CPU once: tens of us a CPU, and as long as a real-time thread
        /// keeps one of them to itself.
        EachCpu,
    }

    /// Which one this process uses; decided at the first call.
    ///
    /// # Errors
    /// Both are refused. Then no VP can be taken over from a kernel thread that did not agree.
    pub fn probe() -> Result<Barrier, Unavailable> {
        static FOUND: OnceLock<Result<Barrier, Unavailable>> = OnceLock::new();
        FOUND
            .get_or_init(|| {
                // Idempotent; inherited by fork and lost at exec.
                let Err(membarrier) = membarrier(CMD_REGISTER_PRIVATE_EXPEDITED) else {
                    return Ok(Barrier::Membarrier);
                };
                match on_each_cpu() {
                    Ok(()) => Ok(Barrier::EachCpu),
                    Err(affinity) => Err(Unavailable::new(
                        format!(
                            "membarrier: {membarrier}; in its place, sched_setaffinity: {affinity}"
                        ),
                        "allow membarrier in the container's seccomp profile (Linux 4.14 or later)",
                    )),
                }
            })
            .clone()
    }

    fn membarrier(command: i64) -> io::Result<()> {
        // SAFETY: membarrier takes integers only.
        match unsafe { libc::syscall(libc::SYS_membarrier, command, 0i64, 0i64) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// As many CPUs as a Linux for x86-64 can be built for.
    const WORDS: usize = 8192 / 64;
    type Cpus = [u64; WORDS];

    fn set_affinity(cpus: &Cpus) -> io::Result<()> {
        // SAFETY: as many bytes as it says.
        match unsafe {
            libc::syscall(libc::SYS_sched_setaffinity, 0i64, size_of::<Cpus>(), cpus.as_ptr())
        } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn affinity() -> io::Result<Cpus> {
        let mut cpus: Cpus = [0; WORDS];
        // SAFETY: as many bytes as it says.
        match unsafe {
            libc::syscall(libc::SYS_sched_getaffinity, 0i64, size_of::<Cpus>(), cpus.as_mut_ptr())
        } {
            1.. => Ok(cpus),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn on_each_cpu() -> io::Result<()> {
        let own = affinity()?;
        // The kernel cuts this down to the CPUs that the cpuset allows: the other kernel threads
        // run nowhere else.
        set_affinity(&[u64::MAX; WORDS])?;
        let all = affinity();
        let walked = all.and_then(|all| {
            for cpu in (0..all.len() * 64).filter(|cpu| all[cpu / 64] & 1 << (cpu % 64) != 0) {
                let mut one: Cpus = [0; WORDS];
                one[cpu / 64] = 1 << (cpu % 64);
                match set_affinity(&one) {
                    // It went offline, or out of the cpuset: threads that ran there had to leave.
                    Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
                    other => other?,
                }
            }
            Ok(())
        });
        // Fails if none of its CPUs is left; then the kernel has widened it as for everybody.
        let _ = set_affinity(&own);
        walked
    }

    pub(super) fn everywhere() {
        let done = match probe() {
            Ok(Barrier::Membarrier) => membarrier(CMD_PRIVATE_EXPEDITED),
            Ok(Barrier::EachCpu) => on_each_cpu(),
            Err(refused) => panic!("kumihimo: {refused}"),
        };
        if let Err(e) = done {
            panic!(
                "kumihimo: a memory barrier for all kernel threads worked and is refused now ({e}); a seccomp filter installed after start?"
            );
        }
    }
}

/// The cheap side: between a store and a load that must not pass it.
#[inline(always)]
pub fn light() {
    atomic::compiler_fence(Ordering::SeqCst);
}

/// The dear side. Blocks the kernel thread for 1-2 us, or longer ([`Barrier::EachCpu`]).
///
/// # Panics
/// If the machine allows neither way, of which [`probe`] says so beforehand.
pub fn heavy() {
    if cfg!(not(loom)) {
        real::everywhere();
    }
    // What came before and after it in this kernel thread.
    fence(Ordering::SeqCst);
}

#[cfg(all(test, not(loom)))]
mod tests;
