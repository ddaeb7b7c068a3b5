//! Signals from this library to kernel threads of its process.

use std::ffi::c_int;

use kumihimo_arch::{queued_signal, system_call};

use crate::real::libc;
use crate::signal::queue::Info;

/// The value of a kick: an address that no program can know to be one.
static KICK: u8 = 0;

/// Whether a signal only tells that one waits in the queue of a thread.
pub(crate) fn is_kick(info: &Info) -> bool {
    // SAFETY: a queued signal has a value.
    info.si_code == libc::SI_QUEUE
        && unsafe { info.si_value() }.sival_ptr.addr() == (&raw const KICK).addr()
}

/// Has the kernel thread `tid` receive `signal`, to look into the queue of the thread that it runs.
/// It may have ended.
pub(super) fn kick(tid: u32, signal: c_int) {
    let value = (&raw const KICK).expose_provenance();
    let _ = queued_signal::send(tid, &queued_signal::info(signal, libc::SI_QUEUE, value));
}

/// Gives a signal for the process back to the kernel, as one that the process has queued: with
/// another code the kernel takes none (rt_sigqueueinfo(2)).
pub(super) fn queue_to_process(info: &Info) {
    let mut queued = *info;
    queued.si_code = libc::SI_QUEUE;
    let at = (&raw const queued).expose_provenance();
    // SAFETY: takes nothing; a live structure of the kernel's size.
    unsafe {
        let arguments = [libc::getpid() as usize, info.si_signo as usize, at, 0, 0, 0];
        system_call(libc::SYS_rt_sigqueueinfo, arguments);
    }
}
