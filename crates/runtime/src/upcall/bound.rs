//! Return of a microprocess to a VP after it came back from the kernel without one.

use std::sync::atomic::Ordering;

use kumihimo_arch::cpu::{self, Context};

use crate::kernel_thread::attributes;
use crate::kernel_thread::gs_record::{KernelThread, running_here};
use crate::microprocess::record::Mp;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::Instance;
use crate::trace_hooks;

/// Makes the microprocess of `kt` runnable, as if woken from outside. It came back without a VP and
/// has left its stack.
pub(crate) fn publish_bound(instance: &Instance, kt: &KernelThread) {
    // SAFETY: null or a record.
    let Some(mp) = (unsafe { kt.current.replace(std::ptr::null()).as_ref() }) else { return };
    if kt.applied.version.get() != attributes::idle_version() {
        kt.apply_attributes(None);
    }
    let left = kt.left.replace(Context::NULL);
    let has_entry = left != Context::NULL && {
        mp.leaves_its_thread(left);
        // After that the microprocess may run on another thread at once.
        kt.events().waiter().leave()
    };
    if !has_entry {
        trace_hooks::unblocked(&instance.trace, kt.tid(), mp);
        instance.inject(usize::from(mp.home.load(Ordering::Relaxed)), mp);
    }
    instance.kernel.unbind();
}

/// As `regain::return_or_stick`, but always returns to a VP.
#[cold]
pub(crate) fn return_to_vp() -> Carrier {
    loop {
        // SAFETY: the caller's standing is `OnVp`: GS is set. Without a VP no call that switches is
        // injected, so the kernel thread stays the same.
        let kt = unsafe { KernelThread::begin_guard() };
        // Masked before the checks. Until here a doorbell may interrupt a microprocess that
        // continued without a VP (`await_another_turn`), which then has a VP or an entry in a
        // queue.
        kt.mask();
        if kt.vp.get().is_null() {
            // SAFETY: a kernel thread's own stack never comes here without a VP, so a microprocess
            // runs; masked.
            let mp = unsafe { running_here() }.expect("a microprocess lost its VP");
            // SAFETY: the microprocess is bound and masked, and its kernel thread has no VP.
            return unsafe { leave_bound(mp) };
        }
        kt.unmask();
        if let Some(carrier) = Carrier::current() {
            return carrier;
        }
    }
}

/// Leaves the kernel thread of a bound microprocess. The microprocess continues on a VP when it is
/// scheduled there.
///
/// # Safety
/// The caller is `mp`; its kernel thread has no VP.
pub(crate) unsafe fn leave_bound(mp: &'static Mp) -> Carrier {
    // SAFETY: the caller is a microprocess: GS is set.
    let kt = unsafe { KernelThread::here() };
    // A scheduler that still holds the microprocess's queue entry must not switch to it before it
    // has left this stack.
    let save = if kt.events().waiter().is_detached() { kt.left.as_ptr() } else { mp.context.get() };
    let (to, fs) = (kt.idle.get(), kt.fs);
    let own_fs = if mp.fs.get() == 0 { fs } else { mp.fs.get() };
    // SAFETY: the kernel thread's own context was saved in `Carrier::run`. That context publishes
    // this microprocess (`current`) only after it was left, and the thread that takes it from the
    // injector continues it on a VP.
    unsafe {
        if fs == own_fs {
            cpu::switch_same(save, *to);
        } else if cpu::fsgsbase() {
            cpu::switch_fs(save, *to, fs);
        } else {
            cpu::switch_prctl(save, *to, fs);
        }
        Carrier::here().arrive()
    }
}
