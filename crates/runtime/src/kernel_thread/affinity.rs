//! The cores that kernel threads of the runtime keep to.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::kernel_thread::gs_record::KernelThread;
use crate::process::cores::{core, cores};

/// How many want the virtual processors to stay on cores of their own.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Some kernel thread may keep to a core still, and those that it begins with it.
static EVER_KEPT: AtomicBool = AtomicBool::new(false);

/// From the next time that they have nothing to do, virtual processors stay on the core where they
/// are at home, until the guard is dropped: a wake-up then comes from the core that is about to be
/// free, and wakes no other. For gates and the board; the kernel's scheduler would take whichever
/// core sleeps.
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

/// Whether somebody wants virtual processors to keep to their cores: there are links, or a board.
pub(crate) fn is_kept() -> bool {
    KEPT.load(Ordering::Relaxed) != 0
}

fn keep_to(cores: &[u32]) -> bool {
    // SAFETY: all zero is an empty set, and the cores are within its size; of the calling kernel
    // thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cores.iter().for_each(|core| libc::CPU_SET(*core as usize, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) == 0
    }
}

/// Lets the calling kernel thread, which begins, run on all cores of the process: it may have
/// inherited the affinity of a thread that keeps to one core.
pub fn begin_on_all_cores() {
    if EVER_KEPT.load(Ordering::Relaxed) {
        keep_to(cores());
    }
}

/// Called by the kernel thread that was notified from core `from`: if it was woken there it leaves
/// that core, and is elsewhere the next time. Else it would preempt the notifier, which has just
/// taken the core, and after it the kernel might choose any thread.
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

    /// It carries no VP for a while, which goes on on that core, or is a fork's child: the calling
    /// kernel thread, and what it begins, may run elsewhere, and is as any other to the kernel's
    /// scheduler. Async-signal-safe.
    pub(crate) fn keep_to_no_core(&self) {
        self.keep_to(None);
        self.kernel_slice.give_back();
    }
}

#[cfg(test)]
mod tests;
