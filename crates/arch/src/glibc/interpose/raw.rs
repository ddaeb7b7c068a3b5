//! `syscall`: system calls by number. Libraries use it for calls that the C library lacks
//! (Landlock, seccomp, keyrings, I/O priorities), and some for all calls.
//!
//! Source: syscall(2).

use std::ffi::{c_int, c_long};

use super::scheduling::{self, of_thread};
use crate::glibc::hook::hooked;

use super::{call, call_bound, failed, identity, is_own, signals};

hooked!(SYSCALL, syscall, self::syscall);

/// Replaces syscall(2). Variadic in C; a caller passes the arguments of a variadic function of
/// integers as those of this one (System V ABI 3.2.3), and what it does not pass is not used.
///
/// # Safety
/// The requirements of the system call.
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let arguments = [a, b, c, d, e, f];
    // SAFETY: the caller's promise.
    unsafe {
        // The most frequent call by far: the locks of std wait by it.
        if number == libc::SYS_futex {
            return call(number, arguments);
        }
        match number {
            // These system calls change the calling kernel thread only, unlike the C library's
            // functions of the same names.
            libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setgroups
            | libc::SYS_capset
            | libc::SYS_unshare
            | libc::SYS_setns
            | libc::SYS_landlock_restrict_self
            | libc::SYS_keyctl
            | libc::SYS_set_mempolicy => call_bound(number, arguments),
            number if crate::machine::changes_port_access(number) => call_bound(number, arguments),
            libc::SYS_seccomp if a != SECCOMP_GET_ACTION_AVAIL && a != SECCOMP_GET_NOTIF_SIZES => {
                call_bound(number, arguments)
            }
            libc::SYS_ioprio_set if a == IOPRIO_WHO_PROCESS && is_own(b as c_int) => {
                call_bound(number, arguments)
            }
            libc::SYS_sched_setaffinity
            | libc::SYS_sched_setscheduler
            | libc::SYS_sched_setparam
            | libc::SYS_sched_setattr => of_thread(a as c_int, number, arguments),
            libc::SYS_setfsuid => c_long::from(identity::setfsuid(a as u32)),
            libc::SYS_setfsgid => c_long::from(identity::setfsgid(a as u32)),
            libc::SYS_personality => c_long::from(identity::personality(a as libc::c_ulong)),
            libc::SYS_prctl => {
                let [first, second, third, fourth] = [b, c, d, e].map(|word| word as libc::c_ulong);
                c_long::from(identity::prctl(a as c_int, first, second, third, fourth))
            }
            libc::SYS_setpriority => {
                c_long::from(scheduling::setpriority(a as u32, b as u32, c as c_int))
            }
            libc::SYS_sigaltstack => c_long::from(signals::sigaltstack(
                std::ptr::with_exposed_provenance(a),
                std::ptr::with_exposed_provenance_mut(b),
            )),
            libc::SYS_rt_sigprocmask if d == size_of::<u64>() => {
                // SAFETY: null, or the kernel's signal sets.
                let set = std::ptr::with_exposed_provenance::<u64>(b).as_ref().copied();
                let before = std::ptr::with_exposed_provenance_mut(c);
                match signals::change_mask(a as c_int, set, before) {
                    Ok(()) => 0,
                    Err(error) => failed(error),
                }
            }
            libc::SYS_clock_gettime if a == libc::CLOCK_THREAD_CPUTIME_ID as usize => {
                let to = std::ptr::with_exposed_provenance_mut(b);
                c_long::from(super::clock::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, to))
            }
            _ => call(number, arguments),
        }
    }
}

/// `SECCOMP_GET_ACTION_AVAIL` and `SECCOMP_GET_NOTIF_SIZES` of seccomp(2) change nothing.
const SECCOMP_GET_ACTION_AVAIL: usize = 2;
const SECCOMP_GET_NOTIF_SIZES: usize = 3;
/// ioprio_set(2).
const IOPRIO_WHO_PROCESS: usize = 1;
