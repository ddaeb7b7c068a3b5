//! Core affinity of the runtime's kernel threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kumihimo_arch::kernel_attributes;

use crate::kernel_thread::gs_record::KernelThread;
use crate::process::cores::{core, cores};

/// Number of guards that bind the VPs to cores of their own.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Whether some kernel thread may still be bound to a core. Threads that it starts inherit the
/// binding.
static EVER_KEPT: AtomicBool = AtomicBool::new(false);

/// Guard that binds each VP to its home core, from the next time that the VP idles until the guard
/// is dropped.
///
/// A wake-up then comes from the core that is about to be free, and wakes no other core. For gates
/// and the board; the kernel's scheduler would choose any sleeping core.
#[must_use]
#[derive(Debug)]
pub struct KeepToCores(());

impl KeepToCores {
    /// Adds one user of the setting.
    pub fn new() -> KeepToCores {
        EVER_KEPT.store(true, Ordering::Relaxed);
        KEPT.fetch_add(1, Ordering::Relaxed);
        KeepToCores(())
    }
}

impl Default for KeepToCores {
    fn default() -> KeepToCores {
        KeepToCores::new()
    }
}

impl Drop for KeepToCores {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether VPs are bound to their cores: links exist, or a board.
pub(crate) fn is_kept() -> bool {
    KEPT.load(Ordering::Relaxed) != 0
}

/// Whether the runtime has ever bound kernel threads to cores.
pub(crate) fn was_ever_kept() -> bool {
    EVER_KEPT.load(Ordering::Relaxed)
}

fn keep_to(cores: &[u32]) -> bool {
    let mut set = [0u64; 16];
    cores.iter().for_each(|core| set[*core as usize / 64] |= 1 << (core % 64));
    kernel_attributes::set_affinity(&set).is_ok()
}

/// Lets the calling kernel thread, which has just started, run on all cores of the process. It may
/// have inherited the affinity of a thread that is bound to one core.
pub fn begin_on_all_cores() {
    if EVER_KEPT.load(Ordering::Relaxed) {
        keep_to(cores());
    }
}

/// Moves the calling kernel thread, which was notified from core `from`, off that core if it was
/// woken there. Otherwise it would preempt the notifier, which has just taken the core, and the
/// kernel might run any thread after it.
pub(crate) fn keep_off(from: u32) {
    if core() == Some(from) && cores().len() > 1 {
        let others: Vec<u32> = cores().iter().copied().filter(|core| *core != from).collect();
        keep_to(&others);
    }
}

impl KernelThread {
    pub(crate) fn keep_to(&self, core: Option<u32>) {
        if self.keeps_to.get() != core
            && keep_to(core.as_ref().map_or(cores(), std::slice::from_ref))
        {
            self.keeps_to.set(core);
        }
    }

    /// Removes the binding of the calling kernel thread to a core, and its slice. It carries no VP
    /// for a while, or is in the child of a fork. The kernel should schedule it, and the threads
    /// that it starts, like any other thread. Async-signal-safe.
    pub(crate) fn keep_to_no_core(&self) {
        self.keep_to(None);
        self.kernel_slice.give_back();
    }
}

#[cfg(test)]
mod tests;
