//! The signal mask: inherited at the start, kept over waits, and obeyed by the kernel.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kumihimo::thread;
use kumihimo_tests::process::alone;

use crate::{in_runtime, pass_the_kernel_thread_on, status};

const SIGNALS: [i32; 4] = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH, libc::SIGURG];

pub(crate) fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: zeros are an empty set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for signal in signals {
        // SAFETY: a live set.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    set
}

pub(crate) fn change(how: i32, signals: &[i32]) {
    let set = set_of(signals);
    // SAFETY: a live set.
    assert_eq!(unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) }, 0);
}

/// The blocked ones of `SIGNALS`, by the C library.
fn blocked() -> Vec<i32> {
    let mut set = set_of(&[]);
    // SAFETY: a live set to be written.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set) };
    // SAFETY: a live set.
    SIGNALS.into_iter().filter(|signal| unsafe { libc::sigismember(&set, *signal) } == 1).collect()
}

/// The same, by the kernel.
fn blocked_in_kernel() -> Vec<i32> {
    let mask = u64::from_str_radix(&status("SigBlk"), 16).expect("hexadecimal");
    SIGNALS.into_iter().filter(|signal| mask & 1 << (signal - 1) != 0).collect()
}

#[test]
fn each_microprocess_keeps_its_mask_over_waits() {
    in_runtime("signal_mask::each_microprocess_keeps_its_mask_over_waits", || {
        let handles: Vec<_> = (0..16usize)
            .map(|bits| {
                thread::spawn(move || {
                    let own: Vec<i32> =
                        (0..4).filter(|bit| bits & 1 << bit != 0).map(|bit| SIGNALS[bit]).collect();
                    change(libc::SIG_SETMASK, &own);
                    for _ in 0..20 {
                        pass_the_kernel_thread_on();
                        assert_eq!(blocked(), own);
                        assert_eq!(blocked_in_kernel(), own);
                    }
                })
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        let usual = || thread::spawn(|| (blocked(), blocked_in_kernel())).join().unwrap();
        (0..50).for_each(|_| assert_eq!(usual(), (vec![], vec![])));
    });
}

#[test]
fn child_inherits_the_mask_and_its_change_is_its_own() {
    in_runtime("signal_mask::child_inherits_the_mask_and_its_change_is_its_own", || {
        change(libc::SIG_BLOCK, &[libc::SIGUSR1]);
        let child = thread::spawn(|| {
            let inherited = blocked_in_kernel();
            change(libc::SIG_UNBLOCK, &[libc::SIGUSR1]);
            change(libc::SIG_BLOCK, &[libc::SIGURG]);
            let grandchild = thread::spawn(blocked_in_kernel).join().unwrap();
            (inherited, grandchild)
        });
        assert_eq!(child.join().unwrap(), (vec![libc::SIGUSR1], vec![libc::SIGURG]));
        pass_the_kernel_thread_on();
        assert_eq!(blocked_in_kernel(), [libc::SIGUSR1]);
    });
}

#[test]
fn child_of_a_kernel_thread_inherits_its_mask() {
    in_runtime("signal_mask::child_of_a_kernel_thread_inherits_its_mask", || {
        let outside = std::thread::spawn(|| {
            change(libc::SIG_BLOCK, &[libc::SIGUSR2]);
            let child = thread::spawn(|| {
                pass_the_kernel_thread_on();
                blocked_in_kernel()
            });
            child.join().unwrap()
        });
        assert_eq!(thread::blocking(|| outside.join().unwrap()), [libc::SIGUSR2]);
        assert!(thread::spawn(blocked_in_kernel).join().unwrap().is_empty());
    });
}

/// The body of the test below, in a process that has no other thread than the caller at its start.
fn wait_for_blocked_signals() {
    // Starts the runtime before the mask is set: its kernel threads have the signal open.
    thread::spawn(|| ()).join().unwrap();
    change(libc::SIG_BLOCK, &[libc::SIGUSR1]);
    for round in 0..200 {
        // The default action of this signal ends the process.
        // SAFETY: integers only.
        unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
        if round % 3 == 0 {
            thread::spawn(pass_the_kernel_thread_on).join().unwrap();
        }
        let taken = thread::spawn(|| {
            let (set, mut signal) = (set_of(&[libc::SIGUSR1]), 0);
            // SAFETY: a live set and a number to be written.
            unsafe { libc::sigwait(&raw const set, &raw mut signal) };
            signal
        });
        assert_eq!(taken.join().unwrap(), libc::SIGUSR1);
    }
}

/// A signal that every thread of the program blocks must never be handled by a kernel thread of the
/// runtime, whatever that does at the moment.
#[test]
fn signal_that_all_threads_block_stays_pending_for_sigwait() {
    alone("signal_mask::signal_that_all_threads_block_stays_pending_for_sigwait", || {
        // libtest's main thread has the signal open. A forked child has no such thread.
        // SAFETY: the child starts its own runtime; no lock that it needs is held by another
        // thread, which waits for this test.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = std::panic::catch_unwind(wait_for_blocked_signals).is_ok();
            // SAFETY: ends the child without libtest's handlers.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = -1;
        // SAFETY: a number to be written.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(
            status, 0,
            "the status of the child, whose low bits are the signal that ended it"
        );
    });
}

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn blocked_signal_is_handled_where_it_is_unblocked() {
    in_runtime("signal_mask::blocked_signal_is_handled_where_it_is_unblocked", || {
        // SAFETY: the handler accesses an atomic only.
        unsafe { libc::signal(libc::SIGUSR1, count as *const () as usize) };
        for round in 1..=100 {
            change(libc::SIG_BLOCK, &[libc::SIGUSR1]);
            // SAFETY: integers only.
            unsafe { libc::raise(libc::SIGUSR1) };
            assert_eq!(HANDLED.load(Ordering::Relaxed), round - 1, "blocked");
            change(libc::SIG_UNBLOCK, &[libc::SIGUSR1]);
            assert_eq!(HANDLED.load(Ordering::Relaxed), round, "unblocked");
            thread::sleep(Duration::from_micros(10));
        }
    });
}

#[test]
fn mask_of_all_signals_is_inherited_and_harmless() {
    in_runtime("signal_mask::mask_of_all_signals_is_inherited_and_harmless", || {
        // SAFETY: a live set to be written and read.
        unsafe {
            let mut all = set_of(&[]);
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        }
        let handles: Vec<_> = (0..8)
            .map(|_| {
                thread::spawn(|| {
                    (0..100).for_each(|_| pass_the_kernel_thread_on());
                    status("SigBlk")
                })
            })
            .collect();
        for handle in handles {
            // All but SIGKILL, SIGSTOP, two of the C library, and SIGBUS, which the runtime needs.
            assert_eq!(handle.join().unwrap(), "fffffffe7ffbfebf");
        }
    });
}

#[test]
fn invalid_changes_are_refused_as_by_the_c_library() {
    in_runtime("signal_mask::invalid_changes_are_refused_as_by_the_c_library", || {
        let set = set_of(&[libc::SIGUSR1]);
        // SAFETY: a live set.
        let (refused, unused) = unsafe {
            (
                libc::pthread_sigmask(7, &raw const set, std::ptr::null_mut()),
                libc::pthread_sigmask(7, std::ptr::null(), std::ptr::null_mut()),
            )
        };
        assert_eq!((refused, unused), (libc::EINVAL, 0));
        assert!(blocked_in_kernel().is_empty());
        // The C library's internal signals cannot be blocked.
        change(libc::SIG_BLOCK, &[libc::SIGUSR1]);
        let mask = u64::from_str_radix(&status("SigBlk"), 16).expect("hexadecimal");
        assert_eq!(mask & (1 << 31 | 1 << 32), 0);
    });
}
