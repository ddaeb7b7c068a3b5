//! pthread_barrier_wait(3).
//!
//! All threads that arrive wait in the lot, kernel threads included. The number of those that have
//! arrived is in the barrier itself, and returns to 0 before the last one wakes the others, so the
//! barrier may be destroyed as soon as one of them has returned.

use std::ffi::c_int;

use libc::pthread_barrier_t;

use crate::lock::lot::{self, Kind, Waiting};
use crate::loom::libc;
use crate::loom::park::Wait;
use crate::signal::section::Section;
use crate::special;
use crate::start::phase;
use crate::thread::record::own_signals;

/// The words of a `pthread_barrier_t` (struct pthread_barrier, sysdeps/nptl/internaltypes.h of
/// glibc).
#[repr(C)]
struct Words {
    arrived: u32,
    round: u32,
    count: u32,
    shared: c_int,
    out: u32,
}

unsafe fn is_real(words: *const Words) -> bool {
    // SAFETY: the caller passes a barrier.
    !phase::has_started() || unsafe { (*words).shared } != 0
}

pub(crate) unsafe fn wait(barrier: *mut pthread_barrier_t) -> c_int {
    let words = barrier.cast::<Words>();
    // SAFETY: the caller's promise.
    if unsafe { is_real(words) } {
        // SAFETY: as above.
        return special::as_kernel_thread(|| unsafe { libc::pthread_barrier_wait(barrier) });
    }
    let key = barrier.addr();
    let _section = Section::enter();
    own_signals().note_waiter();
    // SAFETY: as above. All arrivals count under the lock of the bucket.
    let must_wait = |_: &Waiting<'_>| unsafe {
        (*words).arrived += 1;
        if (*words).arrived < (*words).count {
            return true;
        }
        (*words).arrived = 0;
        false
    };
    match lot::wait(key, Kind::Barrier, Wait::Barrier(key), None, must_wait) {
        lot::End::NotNeeded => {
            // Those of the next round are behind these in the list.
            // SAFETY: this thread has not returned, so the barrier is alive.
            let others = unsafe { (*words).count } as usize - 1;
            lot::wake(key, others, |kind| kind == Kind::Barrier);
            libc::PTHREAD_BARRIER_SERIAL_THREAD
        }
        _ => 0,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { wait(barrier) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_barrier_destroy(
    barrier: *mut pthread_barrier_t,
) -> c_int {
    // SAFETY: the caller's promise. The C library's function would wait for threads to leave.
    unsafe { if is_real(barrier.cast()) { libc::pthread_barrier_destroy(barrier) } else { 0 } }
}
