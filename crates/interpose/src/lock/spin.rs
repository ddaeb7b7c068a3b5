//! pthread_spin_lock(3): spins as the C library does, and then waits.
//!
//! A microprocess may be preempted while it holds the lock, or sleep. Others that only spun would
//! use up the processors that it needs.

use std::ffi::c_int;

use libc::pthread_spinlock_t;

use crate::lock::lot::{self, End, Kind};
use crate::loom::atomic::{Ordering, fence};
use crate::loom::libc;
use crate::loom::park::{self, Wait};
use crate::signal::section::{Section, handle_interruption};
use crate::start::phase;

/// Number of looks before a microprocess waits: about a microsecond.
const LOOKS: usize = 100;

pub(crate) unsafe fn lock(lock: *mut pthread_spinlock_t) -> c_int {
    if !phase::has_started() || !park::may_switch() {
        // SAFETY: the caller's promise.
        return unsafe { libc::pthread_spin_lock(lock) };
    }
    // SAFETY: the caller's promise.
    let is_held = || unsafe { libc::pthread_spin_trylock(lock) } != 0;
    for _ in 0..LOOKS {
        if !is_held() {
            return 0;
        }
        std::hint::spin_loop();
    }
    let key = lock.addr();
    let _section = Section::enter();
    loop {
        match lot::wait(key, Kind::Spin, Wait::Spinlock(key), None, |_| is_held()) {
            End::NotNeeded => return 0,
            End::Interrupted => {
                handle_interruption();
            }
            End::Woken | End::TimedOut if !is_held() => return 0,
            End::Woken | End::TimedOut => {}
        }
    }
}

pub(crate) unsafe fn unlock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::pthread_spin_unlock(lock) };
    if phase::has_started() {
        // The C library's function is a plain store, which the load in `wake` could overtake.
        fence(Ordering::SeqCst);
        lot::wake(lock.addr(), 1, |kind| kind == Kind::Spin);
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_spin_lock(it: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { lock(it) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_spin_unlock(it: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { unlock(it) }
}
