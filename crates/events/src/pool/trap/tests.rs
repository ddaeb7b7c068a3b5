use std::io;

use super::*;
use crate::preempt::signal_handler::{self, update_signal_masks};

fn install() -> io::Result<()> {
    signal_handler::install(libc::SIGTRAP, HANDLERS.trap)
}

/// Returns whether our handler of SIGTRAP blocks `signal`.
fn holds(signal: i32) -> bool {
    // SAFETY: all zeros is a valid sigaction; a live one to be written; a live set.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGTRAP, std::ptr::null(), &mut now), 0);
        libc::sigismember(&now.sa_mask, signal) == 1
    }
}

#[test]
fn unhandled_signals_are_not_blocked() {
    extern "C" fn nothing(_: i32) {}
    install().expect("a handler");
    assert!(holds(libc::SIGUSR1) && !holds(libc::SIGCHLD) && !holds(libc::SIGSEGV));
    // SAFETY: a handler that does nothing.
    unsafe { libc::signal(libc::SIGCHLD, nothing as *const () as usize) };
    for _ in 0..64 {
        update_signal_masks();
    }
    assert!(holds(libc::SIGCHLD) && !holds(libc::SIGWINCH));
    // SAFETY: restores the default action.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    for _ in 0..64 {
        update_signal_masks();
    }
    assert!(!holds(libc::SIGCHLD));
}

/// Otherwise a sample request would copy the stack of our own handler instead of the interrupted
/// code's.
#[test]
fn newly_installed_signal_is_blocked_at_once() {
    install().expect("a handler");
    signal_handler::install(libc::SIGURG, HANDLERS.signal).expect("a handler");
    assert!(holds(libc::SIGURG));
}

/// GS is not set on a kernel thread that is about to end, and on threads outside of the pool. The
/// handler must not use it there.
#[test]
fn trap_outside_of_the_pool_is_ignored() {
    install().expect("a handler");
    // siginfo_t as the kernel fills it for a perf event. A process may send itself any siginfo_t
    // (rt_sigqueueinfo(2)).
    let mut info = [0u64; 16];
    info[0] = libc::SIGTRAP as u64;
    info[1] = TRAP_PERF as u64;
    info[DATA / 8] = SIG_DATA;
    // SAFETY: a live siginfo_t; the handler is ours.
    let sent = unsafe {
        let (pid, tid) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, pid, tid, libc::SIGTRAP, &raw const info)
    };
    assert_eq!(sent, 0, "{}", io::Error::last_os_error());
}
