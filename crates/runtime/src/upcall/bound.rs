//! A microprocess that came back from the kernel without its virtual processor, and how it returns
//! to one.

use std::sync::atomic::Ordering;

use kumihimo_arch::cpu::{self, Context};

use crate::kernel_thread::gs_record::{KernelThread, running_here};
use crate::microprocess::record::Mp;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::Instance;
use crate::trace_hooks;

/// The microprocess that came back without a VP has left its stack: it is runnable, like one that
/// was woken from outside.
pub(crate) fn publish_bound(instance: &Instance, kt: &KernelThread) {
    // SAFETY: null or a record.
    let Some(mp) = (unsafe { kt.current.replace(std::ptr::null()).as_ref() }) else { return };
    let left = kt.left.replace(Context::NULL);
    let has_entry = left != Context::NULL && {
        mp.leaves_its_thread(left);
        // After that it may run on another thread at once.
        kt.events().waiter().leave()
    };
    if !has_entry {
        trace_hooks::unblocked(&instance.trace, kt.tid(), mp);
        instance.inject(usize::from(mp.home.load(Ordering::Relaxed)), mp);
    }
    instance.kernel.unbind();
}

/// As [`return_or_stick`], and it is on a VP.
#[cold]
pub(crate) fn return_to_vp() -> Carrier {
    loop {
        // SAFETY: the caller's standing is `OnVp`: GS is set. It has no VP, so nothing is injected
        // that would switch: it is the same kernel thread.
        let kt = unsafe { KernelThread::begin_guard() };
        // Before the looks: until here a doorbell may interrupt one that went on without a VP
        // (`await_another_turn`), which then has one, or an entry in a queue.
        kt.mask();
        if kt.vp.get().is_null() {
            // SAFETY: the kernel thread's own stack has no VP, so a microprocess runs; masked.
            let mp = unsafe { running_here() }.expect("a microprocess lost its VP");
            // SAFETY: it is bound, masked, and its kernel thread has no VP.
            return unsafe { leave_bound(mp) };
        }
        kt.unmask();
        if let Some(carrier) = Carrier::current() {
            return carrier;
        }
    }
}

/// A bound microprocess gives its kernel thread up and continues when it has its turn on a VP.
///
/// # Safety
/// The caller is `mp`; its kernel thread has no VP.
pub(crate) unsafe fn leave_bound(mp: &'static Mp) -> Carrier {
    // SAFETY: a microprocess: GS is set.
    let kt = unsafe { KernelThread::here() };
    // A scheduler that holds its queue entry must not switch to it before it has left this stack.
    let save = if kt.events().waiter().is_detached() { kt.left.as_ptr() } else { mp.context.get() };
    let (to, fs) = (kt.idle.get(), kt.fs);
    let own_fs = if mp.fs.get() == 0 { fs } else { mp.fs.get() };
    // SAFETY: the kernel thread's own context waits in `Carrier::run`; it publishes this
    // microprocess (`current`) only after it was left. The thread that takes it from the injector
    // continues it on a VP.
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
