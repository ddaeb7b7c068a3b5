//! pthread_mutex_lock(3) and its like.

use std::ffi::c_int;

use libc::pthread_mutex_t;

use crate::lock::lot::{self, End, Kind, Waiting};
use crate::loom::libc;
use crate::loom::park::{self, Wait};
use crate::signal::cancel;
use crate::signal::section::{Section, handle_interruption};
use crate::special;
use crate::start::phase;
use crate::thread::record;
use crate::thread::record::own_signals;
use crate::time::deadline::Deadline;

/// Number of looks at a held lock before its waiter parks. A critical section is often shorter than
/// two switches.
const LOOKS: usize = 40;

unsafe extern "C" {
    #[cfg_attr(not(loom), link_name = "__wrap_pthread_mutex_clocklock")]
    fn pthread_mutex_clocklock(
        mutex: *mut pthread_mutex_t,
        clock: libc::clockid_t,
        at: *const libc::timespec,
    ) -> c_int;
}

/// The words of a `pthread_mutex_t` that this module reads
/// (sysdeps/x86/nptl/bits/struct_mutex.h of glibc).
#[repr(C)]
struct Words {
    lock: c_int,
    count: u32,
    owner: c_int,
    users: u32,
    kind: c_int,
}

// Reports read the owner, too.
#[cfg(not(loom))]
const _: () = assert!(std::mem::offset_of!(Words, owner) == park::lock_layout::PTHREAD_MUTEX_OWNER);

impl Words {
    /// # Safety
    /// `mutex` is a mutex.
    unsafe fn of(mutex: *const pthread_mutex_t) -> *const Words {
        mutex.cast()
    }
}

/// Flags of `kind` (nptl/pthreadP.h of glibc).
const TYPE: c_int = 3;
const ERROR_CHECK: c_int = libc::PTHREAD_MUTEX_ERRORCHECK;
const ROBUST: c_int = 16;
const INHERIT: c_int = 32;
const PROTECT: c_int = 64;
const SHARED: c_int = 128;

/// Whether the kernel or another process takes part in the mutex: robust, priority inheritance or
/// protection, process-shared.
///
/// # Safety
/// `mutex` is a mutex.
#[inline]
unsafe fn is_special(mutex: *const pthread_mutex_t) -> bool {
    // SAFETY: the caller's promise. The kind changes at initialisation only.
    unsafe { (*Words::of(mutex)).kind & (ROBUST | INHERIT | PROTECT | SHARED) != 0 }
}

pub(crate) unsafe fn lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { lock_until(mutex, || Ok(Deadline::Never), |mutex| libc::pthread_mutex_lock(mutex)) }
}

/// Locks the mutex. `deadline` is asked for only if the caller must wait, as POSIX has it: a mutex
/// that is free is locked whatever the time is. `real` is the C library's function, for a caller
/// that is no microprocess.
#[inline]
pub(crate) unsafe fn lock_until(
    mutex: *mut pthread_mutex_t,
    deadline: impl FnOnce() -> Result<Deadline, c_int>,
    real: impl Fn(*mut pthread_mutex_t) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if !phase::has_started() {
            return real(mutex);
        }
        if is_special(mutex) {
            return special::as_kernel_thread(|| real(mutex));
        }
        match libc::pthread_mutex_trylock(mutex) {
            libc::EBUSY => {}
            done => return done,
        }
        if !park::may_switch() {
            return real(mutex);
        }
        match deadline() {
            Ok(deadline) => wait(mutex, deadline),
            Err(error) => error,
        }
    }
}

#[cold]
unsafe fn wait(mutex: *mut pthread_mutex_t, deadline: Deadline) -> c_int {
    let _section = Section::enter();
    // SAFETY: the caller's promise. The owner is the caller's own number only if the caller wrote
    // it, so the read needs no order.
    unsafe {
        let words = Words::of(mutex);
        let is_own = std::ptr::read_volatile(&raw const (*words).owner) == record::number();
        if (*words).kind & TYPE == ERROR_CHECK && is_own {
            return libc::EDEADLK;
        }
        let several = park::vps().is_some_and(|vps| vps > 1);
        for _ in 0..if several { LOOKS } else { 0 } {
            std::hint::spin_loop();
            if std::ptr::read_volatile(&raw const (*words).lock) == 0 {
                match libc::pthread_mutex_trylock(mutex) {
                    libc::EBUSY => {}
                    done => return done,
                }
            }
        }
        loop {
            let mut done = libc::EBUSY;
            let must_wait = |_: &Waiting<'_>| {
                done = libc::pthread_mutex_trylock(mutex);
                done == libc::EBUSY
            };
            let key = mutex.addr();
            let end =
                lot::wait(key, Kind::Mutex, Wait::PthreadMutex(key), deadline.instant(), must_wait);
            match end {
                End::NotNeeded => return done,
                // A handler does not end the wait (pthread_mutex_lock(3)), and a cancellation does
                // if it takes effect anywhere.
                End::Interrupted => {
                    handle_interruption();
                    if own_signals().cancel.is_due() {
                        return libc::ECANCELED;
                    }
                }
                End::Woken | End::TimedOut => {}
            }
            match libc::pthread_mutex_trylock(mutex) {
                libc::EBUSY => {}
                done => return done,
            }
            // A caller that was woken and finds the mutex held has lost it to another thread, whose
            // unlock wakes the next waiter.
            if deadline.has_passed() {
                return libc::ETIMEDOUT;
            }
        }
    }
}

/// Part of the exported function: another call would cost a twentieth of an uncontended
/// lock and unlock.
#[inline(always)]
pub(crate) unsafe fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise. After the unlock the mutex may be gone: only its address is
    // used.
    unsafe {
        if !phase::has_started() {
            return libc::pthread_mutex_unlock(mutex);
        }
        if is_special(mutex) {
            return special::as_kernel_thread(|| libc::pthread_mutex_unlock(mutex));
        }
        let done = libc::pthread_mutex_unlock(mutex);
        lot::wake(mutex.addr(), 1, |kind| kind == Kind::Mutex);
        done
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn kumi_interpose_pthread_mutex_lock(
    mutex: *mut pthread_mutex_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        // A mutex that is free needs no more than this. What else a lock can need, the caller's
        // thread-local data first, the compiler would fetch before it.
        if phase::has_started() && !is_special(mutex) {
            match libc::pthread_mutex_trylock(mutex) {
                libc::EBUSY => {}
                done => return done,
            }
        }
        lock_or_unwind(mutex)
    }
}

#[cold]
#[inline(never)]
unsafe fn lock_or_unwind(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise.
    unless_cancelled(|| unsafe { lock(mutex) })
}

/// Repeats `lock` while it returns ECANCELED, which only a thread of asynchronous type meets: that
/// unwinds, unless it ends already.
#[inline]
fn unless_cancelled(lock: impl Fn() -> c_int) -> c_int {
    loop {
        match lock() {
            libc::ECANCELED => cancel::point(),
            done => return done,
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_pthread_mutex_trylock(
    mutex: *mut pthread_mutex_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if phase::has_started() && is_special(mutex) {
            return special::as_kernel_thread(|| libc::pthread_mutex_trylock(mutex));
        }
        libc::pthread_mutex_trylock(mutex)
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn kumi_interpose_pthread_mutex_timedlock(
    mutex: *mut pthread_mutex_t,
    at: *const libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    unless_cancelled(|| unsafe {
        lock_until(
            mutex,
            || Deadline::at(libc::CLOCK_REALTIME, at),
            |mutex| libc::pthread_mutex_timedlock(mutex, at),
        )
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_pthread_mutex_clocklock(
    mutex: *mut pthread_mutex_t,
    clock: libc::clockid_t,
    at: *const libc::timespec,
) -> c_int {
    if !Deadline::is_of(clock) {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    unless_cancelled(|| unsafe {
        lock_until(
            mutex,
            || Deadline::at(clock, at),
            |mutex| pthread_mutex_clocklock(mutex, clock, at),
        )
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { unlock(mutex) }
}
