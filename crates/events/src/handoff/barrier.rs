//! An asymmetric memory barrier: free on the frequent side, expensive on the rare side.
//!
//! [`light`] orders this kernel thread's earlier store before its later load *as seen by a thread
//! that calls [`heavy`]*. `light` is a compiler barrier. `heavy` makes every kernel thread of the
//! process execute a full barrier, by the first of these two methods that the machine allows:
//!
//! 1. membarrier(2) with MEMBARRIER_CMD_PRIVATE_EXPEDITED (Linux 4.14) sends an interrupt to each
//!    CPU that runs a thread of the process.
//! 2. The caller moves to each CPU in turn by sched_setaffinity(2). A thread that ran on that CPU
//!    was switched out for the caller, and a context switch is a full barrier. A thread that
//!    migrated in the meantime was switched out as well.
//!
//! # Weakly ordered processors
//! Neither method depends on the memory model of the processor. The interruption falls between two
//! instructions of the light side: before its store, after its load, or in between. A load after
//! the interruption is executed after it, even if the processor had tried it earlier. A store
//! before it is visible when `heavy` returns, because the kernel executes a full barrier in the
//! interruption (`ipi_mb` in kernel/sched/membarrier.c), or at the context switch. Other orders
//! than that of the store before the load are not implied: both sides state them as Acquire and
//! Release.
//!
//! A full fence on both sides is no alternative: [`Slot::enter`](crate::Slot::enter), on the light
//! side, executes no fence. Changing the page tables is none either: a CPU that can flush the TLBs
//! of others by an instruction (INVLPGB) sends no interrupt.

use crate::loom::atomic::{self, Ordering, fence};

pub use real::{Barrier, probe};

mod real {
    use std::io;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    use kumihimo_arch::kernel_attributes;

    use crate::report::unavailable::Unavailable;

    const CMD_PRIVATE_EXPEDITED: i64 = 1 << 3;
    const CMD_REGISTER_PRIVATE_EXPEDITED: i64 = 1 << 4;

    /// How [`heavy`](super::heavy) reaches the other kernel threads.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Barrier {
        /// membarrier(2): 1-2 us.
        Membarrier,
        /// The caller runs on each CPU once: tens of microseconds for each CPU. A real-time thread
        /// that occupies a CPU delays the caller for as long as it runs.
        EachCpu,
    }

    /// Returns the method that this process uses. The first call decides.
    ///
    /// # Errors
    /// The kernel refuses both methods. A VP can then be taken over only where the event source
    /// lends it in the kernel (`bpf`).
    pub fn probe() -> Result<Barrier, Unavailable> {
        static FOUND: OnceLock<Result<Barrier, Unavailable>> = OnceLock::new();
        FOUND
            .get_or_init(|| {
                // The registration is idempotent. It is inherited by fork(2) and lost at execve(2).
                let Err(membarrier) = membarrier(CMD_REGISTER_PRIVATE_EXPEDITED) else {
                    return Ok(Barrier::Membarrier);
                };
                match on_each_cpu() {
                    Ok(()) => Ok(Barrier::EachCpu),
                    Err(affinity) => Err(Unavailable::new(
                        format!("membarrier: {membarrier}; sched_setaffinity instead: {affinity}"),
                        "allow membarrier in the container's seccomp profile (Linux 4.14 or later)",
                    )),
                }
            })
            .clone()
    }

    fn membarrier(command: i64) -> io::Result<()> {
        // SAFETY: membarrier takes integers only.
        match unsafe { kumihimo_arch::call!(libc::SYS_membarrier, command, 0i64, 0i64) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The size of a CPU mask: the largest NR_CPUS of a kernel for x86-64 (arch/x86/Kconfig), 8192.
    /// On arm64 it is 4096.
    const WORDS: usize = 8192 / 64;
    type Cpus = [u64; WORDS];

    pub(super) fn affinity() -> io::Result<Cpus> {
        let mut cpus: Cpus = [0; WORDS];
        // SAFETY: `cpus` is live and as large as the size argument.
        match unsafe {
            kumihimo_arch::call!(
                libc::SYS_sched_getaffinity,
                0i64,
                size_of::<Cpus>(),
                cpus.as_mut_ptr()
            )
        } {
            1.. => Ok(cpus),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn on_each_cpu() -> io::Result<()> {
        let own = affinity()?;
        // The kernel restricts this mask to the CPUs of the cpuset. The other threads run on no
        // other CPU.
        kernel_attributes::set_affinity(&[u64::MAX; WORDS])?;
        let all = affinity();
        let walked = all.and_then(|all| {
            for cpu in (0..all.len() * 64).filter(|cpu| all[cpu / 64] & 1 << (cpu % 64) != 0) {
                let mut one: Cpus = [0; WORDS];
                one[cpu / 64] = 1 << (cpu % 64);
                match kernel_attributes::set_affinity(&one) {
                    // The CPU went offline or left the cpuset: its threads were switched out.
                    Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
                    other => other?,
                }
            }
            Ok(())
        });
        // Fails if none of the former CPUs is left. The kernel has widened the affinity then, as it
        // does for every thread in this situation.
        let _ = kernel_attributes::set_affinity(&own);
        walked
    }

    /// Whether the kernel has refused membarrier(2) after it had allowed it: a seccomp filter was
    /// installed meanwhile.
    static REFUSED: AtomicBool = AtomicBool::new(false);

    pub(super) fn everywhere() {
        let done = match probe() {
            // Relaxed: a hint, which saves a call that fails.
            Ok(Barrier::Membarrier) if !REFUSED.load(Ordering::Relaxed) => {
                membarrier(CMD_PRIVATE_EXPEDITED).or_else(|_| {
                    REFUSED.store(true, Ordering::Relaxed);
                    on_each_cpu()
                })
            }
            Ok(_) => on_each_cpu(),
            Err(refused) => panic!("kumihimo: {refused}"),
        };
        if let Err(e) = done {
            panic!(
                "kumihimo: the kernel now refuses every memory barrier that it allowed at start ({e}), probably by a seccomp filter installed since; allow membarrier in that filter"
            );
        }
    }
}

/// Orders an earlier store before a later load, as seen by a thread that calls [`heavy`]. Free.
#[inline(always)]
pub fn light() {
    atomic::compiler_fence(Ordering::SeqCst);
}

/// Executes a full barrier on every kernel thread of the process. Blocks the caller for 1-2 us, or
/// longer ([`Barrier::EachCpu`]).
///
/// # Panics
/// If the kernel refuses both methods. [`probe`] returns the error beforehand.
pub fn heavy() {
    if cfg!(not(loom)) {
        real::everywhere();
    }
    // Orders the accesses of this kernel thread before and after the barrier.
    fence(Ordering::SeqCst);
}

#[cfg(all(test, not(loom)))]
mod tests;
