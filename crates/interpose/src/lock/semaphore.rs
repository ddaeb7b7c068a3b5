//! sem_wait(3) and its like.

use std::ffi::c_int;

use libc::sem_t;

use crate::failed;
use crate::lock::lot::{self, End, Kind, Waiting};
use crate::loom::libc;
use crate::loom::park::{self, Wait};
use crate::signal::cancel;
use crate::signal::section::{Section, handle_interruption};
use crate::start::phase;
use crate::time::deadline::Deadline;

unsafe extern "C" {
    #[cfg_attr(not(loom), link_name = "__wrap_sem_clockwait")]
    fn sem_clockwait(
        semaphore: *mut sem_t,
        clock: libc::clockid_t,
        at: *const libc::timespec,
    ) -> c_int;
    #[cfg_attr(not(loom), link_name = "__wrap_sem_timedwait")]
    fn sem_timedwait(semaphore: *mut sem_t, at: *const libc::timespec) -> c_int;
}

/// Index of `private` among the 32-bit words: 0, or a flag if other processes share the semaphore
/// (struct new_sem, sysdeps/nptl/internaltypes.h of glibc).
const SHARED: usize = 2;

/// Takes a unit if there is one. Keeps errno otherwise.
unsafe fn attempt(semaphore: *mut sem_t) -> bool {
    // SAFETY: the caller passes a semaphore. errno belongs to the calling thread.
    unsafe {
        let before = *libc::__errno_location();
        let taken = libc::sem_trywait(semaphore) == 0;
        *libc::__errno_location() = before;
        taken
    }
}

pub(crate) unsafe fn wait_until(
    semaphore: *mut sem_t,
    deadline: impl FnOnce() -> Result<Deadline, c_int>,
    real: impl Fn(*mut sem_t) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        // Other processes post to a shared one.
        let is_shared = semaphore.cast::<u32>().add(SHARED).read_volatile() != 0;
        if !phase::has_started() || is_shared || !park::may_switch() {
            return real(semaphore);
        }
        // The C library refuses a bad time also where there is a unit.
        match deadline() {
            Ok(_) if attempt(semaphore) => 0,
            Ok(deadline) => wait(semaphore, deadline),
            Err(error) => failed(error),
        }
    }
}

#[cold]
unsafe fn wait(semaphore: *mut sem_t, deadline: Deadline) -> c_int {
    let key = semaphore.addr();
    let _section = Section::enter();
    loop {
        // SAFETY: the caller's promise.
        let must_wait = |_: &Waiting<'_>| unsafe { !attempt(semaphore) };
        let why = Wait::Semaphore(key);
        let end = lot::wait(key, Kind::Semaphore, why, deadline.instant(), must_wait);
        // SAFETY: as above.
        if end == End::NotNeeded || unsafe { attempt(semaphore) } {
            return 0;
        }
        if deadline.has_passed() {
            return failed(libc::ETIMEDOUT);
        }
        if end == End::Interrupted && handle_interruption().ends(deadline.is_some()) {
            return failed(libc::EINTR);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_sem_wait(semaphore: *mut sem_t) -> c_int {
    // SAFETY: the caller's promise.
    cancel::around(|| unsafe {
        wait_until(semaphore, || Ok(Deadline::Never), |semaphore| libc::sem_wait(semaphore))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_sem_timedwait(
    semaphore: *mut sem_t,
    at: *const libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    cancel::around(|| unsafe {
        let deadline = || Deadline::at(libc::CLOCK_REALTIME, at);
        wait_until(semaphore, deadline, |semaphore| sem_timedwait(semaphore, at))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_sem_clockwait(
    semaphore: *mut sem_t,
    clock: libc::clockid_t,
    at: *const libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    cancel::around(|| unsafe {
        let deadline = || Deadline::at(clock, at);
        wait_until(semaphore, deadline, |semaphore| sem_clockwait(semaphore, clock, at))
    })
}

pub(crate) unsafe fn post(semaphore: *mut sem_t) -> c_int {
    // SAFETY: the caller's promise. After the post only the address is used: a woken thread may
    // free the semaphore.
    let done = unsafe { libc::sem_post(semaphore) };
    if done == 0 && phase::has_started() {
        lot::wake(semaphore.addr(), 1, |kind| kind == Kind::Semaphore);
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_sem_post(semaphore: *mut sem_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { post(semaphore) }
}
