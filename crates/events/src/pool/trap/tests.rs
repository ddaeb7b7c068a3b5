use std::io;

use super::*;
use crate::preempt::signal_handler::{self, update_signal_masks};

fn install() -> io::Result<()> {
    signal_handler::install(libc::SIGTRAP, HANDLERS.trap)
}

/// Whether our handler of SIGTRAP holds `signal` back.
fn holds(signal: i32) -> bool {
    // SAFETY: all zeros is a valid sigaction; a live one to be written; a live set.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGTRAP, std::ptr::null(), &mut now), 0);
        libc::sigismember(&now.sa_mask, signal) == 1
    }
}

#[test]
fn what_nobody_handles_is_not_held_back() {
    extern "C" fn nothing(_: i32) {}
    install().expect("a handler");
    assert!(holds(libc::SIGUSR1) && !holds(libc::SIGCHLD) && !holds(libc::SIGSEGV));
    // SAFETY: a handler that does nothing.
    unsafe { libc::signal(libc::SIGCHLD, nothing as *const () as usize) };
    for _ in 0..64 {
        update_signal_masks();
    }
    assert!(holds(libc::SIGCHLD) && !holds(libc::SIGWINCH));
    // SAFETY: as it was.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    for _ in 0..64 {
        update_signal_masks();
    }
    assert!(!holds(libc::SIGCHLD));
}

/// What asks a kernel thread for its stack is not to be answered with that of our own handler.
#[test]
fn a_signal_that_becomes_ours_later_is_held_back_at_once() {
    install().expect("a handler");
    signal_handler::install(libc::SIGURG, HANDLERS.signal).expect("a handler");
    assert!(holds(libc::SIGURG));
}

/// A trap of ours where GS is not set: a kernel thread that is about to end, or any other. (It
/// was a crash.)
#[test]
fn a_trap_outside_of_the_pool_is_nothing() {
    install().expect("a handler");
    // siginfo_t as the kernel makes it for a perf event; a process may send itself any
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
