//! Signals from this library to kernel threads of its process.

use std::ffi::c_int;

use kumihimo_arch::system_call;

use crate::signal::queue::Info;

/// The kernel's siginfo of a signal that a process has sent; sigaction(2).
#[repr(C)]
pub(super) struct Sent {
    signal: c_int,
    errno: c_int,
    code: c_int,
    _pad: c_int,
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: usize,
    _rest: [u64; 12],
}

const _: () = assert!(size_of::<Sent>() == size_of::<Info>());

impl Sent {
    pub(super) fn info(signal: c_int, code: c_int, value: usize) -> Info {
        // SAFETY: take nothing.
        let (pid, uid) = unsafe { (libc::getpid(), libc::getuid()) };
        let sent = Sent { signal, errno: 0, code, _pad: 0, pid, uid, value, _rest: [0; 12] };
        // SAFETY: the same size, and the kernel's layout.
        unsafe { std::mem::transmute::<Sent, Info>(sent) }
    }
}

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
    let kick = Sent::info(signal, libc::SI_QUEUE, (&raw const KICK).expose_provenance());
    queue_to(tid, signal, &kick);
}

/// Sends a signal with these data to a kernel thread of this process. Returns the kernel's result.
pub(super) fn queue_to(tid: u32, signal: c_int, info: &Info) -> isize {
    let at = std::ptr::from_ref(info).expose_provenance();
    // SAFETY: a live structure of the kernel's size.
    unsafe {
        let arguments = [libc::getpid() as usize, tid as usize, signal as usize, at, 0, 0];
        system_call(libc::SYS_rt_tgsigqueueinfo, arguments)
    }
}
