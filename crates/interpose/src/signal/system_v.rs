//! The signal functions of System V and BSD: sigset(3), sigpause(3). The C library makes them of
//! inner functions, which change the kernel thread.

use std::ffi::c_int;

use libc::sighandler_t;

use crate::failed;
use crate::real::libc;
use crate::signal::handlers::{install, installed};
use crate::signal::mask::{of_caller, set_of};
use crate::signal::mask_calls::kumi_interpose_sigprocmask;
use crate::signal::set::{bit, is_signal};
use crate::signal::wait::kumi_interpose_sigsuspend;

/// `SIG_HOLD` of <signal.h>: the signal is blocked.
const HOLD: sighandler_t = 2;

/// Changes one bit of the mask.
fn change_one(how: c_int, signal: c_int) -> c_int {
    if !is_signal(signal) {
        return failed(libc::EINVAL);
    }
    let set = set_of(bit(signal));
    // SAFETY: a live set.
    unsafe { kumi_interpose_sigprocmask(how, &set, std::ptr::null_mut()) }
}

/// Replaces sighold(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_sighold(signal: c_int) -> c_int {
    change_one(libc::SIG_BLOCK, signal)
}

/// Replaces sigrelse(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_sigrelse(signal: c_int) -> c_int {
    change_one(libc::SIG_UNBLOCK, signal)
}

/// Replaces sigignore(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_sigignore(signal: c_int) -> c_int {
    match install(signal, libc::SIG_IGN, 0, 0) {
        libc::SIG_ERR => -1,
        _ => 0,
    }
}

/// Replaces sigset(3): blocks the signal, or installs a handler and unblocks it. Returns what was
/// before, `SIG_HOLD` if the signal was blocked.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    if !is_signal(signal) {
        failed(libc::EINVAL);
        return libc::SIG_ERR;
    }
    let was_blocked = of_caller() & bit(signal) != 0;
    let (before, how) = match handler {
        HOLD => (installed(signal), libc::SIG_BLOCK),
        _ => (install(signal, handler, 0, 0), libc::SIG_UNBLOCK),
    };
    if before == libc::SIG_ERR || change_one(how, signal) != 0 {
        return libc::SIG_ERR;
    }
    if was_blocked { HOLD } else { before }
}

/// Replaces sigpause(3) of System V: waits with one signal less blocked.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose___xpg_sigpause(signal: c_int) -> c_int {
    if !is_signal(signal) {
        return failed(libc::EINVAL);
    }
    let set = set_of(of_caller() & !bit(signal));
    // SAFETY: a live set.
    unsafe { kumi_interpose_sigsuspend(&raw const set) }
}

/// Replaces sigpause(3) of BSD: waits with `mask`, which has the first 32 signals, as the mask.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_sigpause(mask: c_int) -> c_int {
    let set = set_of(u64::from(mask.cast_unsigned()));
    // SAFETY: a live set.
    unsafe { kumi_interpose_sigsuspend(&raw const set) }
}
