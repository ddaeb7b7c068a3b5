//! Signals with a value that a process queues to one of its own kernel threads;
//! rt_tgsigqueueinfo(2).

use std::ffi::c_int;

use crate::system_call;

/// The kernel's siginfo of a signal that a process has sent; sigaction(2).
#[repr(C)]
struct Sent {
    signal: c_int,
    errno: c_int,
    code: c_int,
    _pad: c_int,
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: usize,
    _rest: [u64; 12],
}

const _: () = assert!(size_of::<Sent>() == size_of::<libc::siginfo_t>());

/// Returns what the kernel would tell about a signal that the caller sends. Async-signal-safe.
#[must_use]
pub fn info(signal: c_int, code: c_int, value: usize) -> libc::siginfo_t {
    // SAFETY: take nothing.
    let (pid, uid) = unsafe { (libc::getpid(), libc::getuid()) };
    let sent = Sent { signal, errno: 0, code, _pad: 0, pid, uid, value, _rest: [0; 12] };
    // SAFETY: the same size, and the kernel's layout.
    unsafe { std::mem::transmute::<Sent, libc::siginfo_t>(sent) }
}

/// Sends a signal with these data to kernel thread `tid` of this process. Async-signal-safe.
///
/// # Errors
/// `ESRCH` if the thread has ended; other errors of rt_tgsigqueueinfo(2).
pub fn send(tid: u32, info: &libc::siginfo_t) -> std::io::Result<()> {
    let at = std::ptr::from_ref(info).expose_provenance();
    // SAFETY: a live siginfo of the kernel's size.
    let done = unsafe {
        let arguments = [libc::getpid() as usize, tid as usize, info.si_signo as usize, at, 0, 0];
        system_call(libc::SYS_rt_tgsigqueueinfo, arguments)
    };
    match done {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(-error as i32)),
    }
}
