//! pthread_rwlock_rdlock(3) and its like.

use std::ffi::c_int;

use libc::pthread_rwlock_t;

use crate::lock::lot::{self, End, Kind, Waiting};
use crate::loom::libc;
use crate::loom::park::{self, Wait};
use crate::signal::section::{Section, handle_interruption, is_interrupted};
use crate::special;
use crate::start::phase;
use crate::thread::record;
use crate::time::deadline::Deadline;

unsafe extern "C" {
    #[cfg_attr(not(loom), link_name = "__wrap_pthread_rwlock_clockrdlock")]
    fn pthread_rwlock_clockrdlock(
        lock: *mut pthread_rwlock_t,
        clock: libc::clockid_t,
        at: *const libc::timespec,
    ) -> c_int;
    #[cfg_attr(not(loom), link_name = "__wrap_pthread_rwlock_clockwrlock")]
    fn pthread_rwlock_clockwrlock(
        lock: *mut pthread_rwlock_t,
        clock: libc::clockid_t,
        at: *const libc::timespec,
    ) -> c_int;
    #[cfg_attr(not(loom), link_name = "__wrap_pthread_rwlock_timedrdlock")]
    fn pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, at: *const libc::timespec) -> c_int;
    #[cfg_attr(not(loom), link_name = "__wrap_pthread_rwlock_timedwrlock")]
    fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, at: *const libc::timespec) -> c_int;
}

/// Indices of `__cur_writer` and `__shared` among the 32-bit words
/// (sysdeps/x86/nptl/bits/struct_rwlock.h of glibc).
const WRITER: usize = 6;
const SHARED: usize = 7;
/// Index of `__flags`, the kind of the lock.
const KIND: usize = 12;
// Reports read the words, too.
#[cfg(not(loom))]
const _: () = assert!(
    WRITER * 4 == park::lock_layout::PTHREAD_RWLOCK_WRITER
        && park::lock_layout::PTHREAD_RWLOCK_READERS == 0
);
/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP` of <pthread.h>.
const PREFERS_WRITERS: c_int = 2;

unsafe fn word(lock: *const pthread_rwlock_t, index: usize) -> c_int {
    // SAFETY: the caller passes a lock.
    unsafe { lock.cast::<c_int>().add(index).read_volatile() }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Read,
    Write,
}

impl Side {
    /// Tries to lock, without waiting: EBUSY if it is held.
    unsafe fn attempt(self, lock: *mut pthread_rwlock_t) -> c_int {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Side::Read => libc::pthread_rwlock_tryrdlock(lock),
                Side::Write => libc::pthread_rwlock_trywrlock(lock),
            }
        }
    }
}

#[inline]
pub(crate) unsafe fn lock_until(
    lock: *mut pthread_rwlock_t,
    side: Side,
    deadline: impl FnOnce() -> Result<Deadline, c_int>,
    real: impl Fn(*mut pthread_rwlock_t) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if !phase::has_started() {
            return real(lock);
        }
        if word(lock, SHARED) != 0 {
            return special::as_kernel_thread(|| real(lock));
        }
        // The C library refuses a bad time also where the lock is free.
        let deadline = match deadline() {
            Ok(deadline) => deadline,
            Err(error) => return error,
        };
        // A reader does not pass a writer that waits, if the lock is of that kind: `wait` looks.
        let is_first = side == Side::Write
            || word(lock, KIND) != PREFERS_WRITERS
            || !lot::may_wait(lock.addr());
        if is_first {
            match side.attempt(lock) {
                libc::EBUSY => {}
                done => return done,
            }
        }
        if word(lock, WRITER) == record::number() {
            return libc::EDEADLK;
        }
        if !park::may_switch() {
            return real(lock);
        }
        wait(lock, side, deadline)
    }
}

#[cold]
unsafe fn wait(lock: *mut pthread_rwlock_t, side: Side, deadline: Deadline) -> c_int {
    let _section = Section::enter();
    // SAFETY: the caller's promise.
    unsafe {
        match side {
            Side::Read => wait_to_read(lock, deadline),
            Side::Write => wait_to_write(lock, deadline),
        }
    }
}

unsafe fn wait_to_read(lock: *mut pthread_rwlock_t, deadline: Deadline) -> c_int {
    let key = lock.addr();
    loop {
        let mut done = libc::EBUSY;
        let must_wait = |waiting: &Waiting<'_>| {
            // SAFETY: the caller's promise.
            let prefers_writers = unsafe { word(lock, KIND) } == PREFERS_WRITERS;
            if prefers_writers && waiting.has(key, Kind::Writer) {
                return true;
            }
            // SAFETY: as above.
            done = unsafe { Side::Read.attempt(lock) };
            done == libc::EBUSY
        };
        let why = Wait::PthreadRwLock(key);
        match lot::wait(key, Kind::Reader, why, deadline.instant(), must_wait) {
            End::NotNeeded => return done,
            End::Interrupted => {
                handle_interruption();
            }
            End::Woken | End::TimedOut => {}
        }
        // SAFETY: as above.
        match unsafe { Side::Read.attempt(lock) } {
            libc::EBUSY => {}
            done => return done,
        }
        if deadline.has_passed() {
            return libc::ETIMEDOUT;
        }
    }
}

/// A writer stays in the lot until it has the lock, so that readers see it there all the time.
unsafe fn wait_to_write(lock: *mut pthread_rwlock_t, deadline: Deadline) -> c_int {
    let key = lock.addr();
    let done = loop {
        let done = lot::enter(key, Kind::Writer, |entered| {
            loop {
                // SAFETY: the caller's promise.
                let done = match unsafe { Side::Write.attempt(lock) } {
                    libc::EBUSY if deadline.has_passed() => libc::ETIMEDOUT,
                    done => done,
                };
                if done != libc::EBUSY || is_interrupted(false) {
                    entered.leave();
                    return done;
                }
                entered.pause(Wait::PthreadRwLock(key), deadline.instant());
            }
        });
        if done != libc::EBUSY {
            break done;
        }
        // Others may pass the writer while it handles a signal.
        wake(key);
        handle_interruption();
    };
    if done == libc::ETIMEDOUT {
        // Readers may wait for this writer only.
        wake(key);
    }
    done
}

/// Wakes the waiters that may have the lock now: the first one if it is a writer, else all readers.
/// A waiter that finds the lock held by another thread waits again, and that thread's unlock comes
/// here.
fn wake(key: usize) {
    if !lot::nudge_first(key, Kind::Writer) {
        lot::wake(key, usize::MAX, |kind| kind == Kind::Reader);
    }
}

pub(crate) unsafe fn unlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's promise. After the unlock only the address is used.
    unsafe {
        if !phase::has_started() {
            return libc::pthread_rwlock_unlock(lock);
        }
        if word(lock, SHARED) != 0 {
            return special::as_kernel_thread(|| libc::pthread_rwlock_unlock(lock));
        }
        let done = libc::pthread_rwlock_unlock(lock);
        wake(lock.addr());
        done
    }
}

macro_rules! define {
    ($side:expr, $plain:ident, $timed:ident, $clock:ident, $attempt:ident,
     $real:path, $real_timed:path, $real_clock:path) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $plain(lock: *mut pthread_rwlock_t) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { lock_until(lock, $side, || Ok(Deadline::Never), |lock| $real(lock)) }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $timed(
            lock: *mut pthread_rwlock_t,
            at: *const libc::timespec,
        ) -> c_int {
            // SAFETY: the caller's promise.
            unsafe {
                let deadline = || Deadline::at(libc::CLOCK_REALTIME, at);
                lock_until(lock, $side, deadline, |lock| $real_timed(lock, at))
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $clock(
            lock: *mut pthread_rwlock_t,
            clock: libc::clockid_t,
            at: *const libc::timespec,
        ) -> c_int {
            // SAFETY: the caller's promise.
            unsafe {
                let deadline = || Deadline::at(clock, at);
                lock_until(lock, $side, deadline, |lock| $real_clock(lock, clock, at))
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C" fn $attempt(lock: *mut pthread_rwlock_t) -> c_int {
            // SAFETY: the caller's promise.
            unsafe {
                if phase::has_started() && word(lock, SHARED) != 0 {
                    return special::as_kernel_thread(|| $side.attempt(lock));
                }
                $side.attempt(lock)
            }
        }
    };
}

define!(
    Side::Read,
    kumi_interpose_pthread_rwlock_rdlock,
    kumi_interpose_pthread_rwlock_timedrdlock,
    kumi_interpose_pthread_rwlock_clockrdlock,
    kumi_interpose_pthread_rwlock_tryrdlock,
    libc::pthread_rwlock_rdlock,
    pthread_rwlock_timedrdlock,
    pthread_rwlock_clockrdlock
);
define!(
    Side::Write,
    kumi_interpose_pthread_rwlock_wrlock,
    kumi_interpose_pthread_rwlock_timedwrlock,
    kumi_interpose_pthread_rwlock_clockwrlock,
    kumi_interpose_pthread_rwlock_trywrlock,
    libc::pthread_rwlock_wrlock,
    pthread_rwlock_timedwrlock,
    pthread_rwlock_clockwrlock
);

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { unlock(lock) }
}
