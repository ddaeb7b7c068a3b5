//! Waits for signals: sigwait(3), sigtimedwait(2), sigsuspend(2), pause(2).

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use kumihimo_arch::system_call;
use kumihimo_runtime::park::{self, Wait};
use kumihimo_runtime::thread::blocking;
use libc::{sigset_t, timespec};

use crate::failed;
use crate::real::libc;
use crate::signal::cancel;
use crate::signal::kick::is_kick;
use crate::signal::queue::Info;
use crate::signal::section::{self, Then};
use crate::signal::set::bit;
use crate::signal::{mask, mask_calls, process};
use crate::thread::record;
use crate::thread::record::own_signals;
use crate::time::deadline::{Deadline, check};

/// Takes a signal of `set` out of the caller's queue.
fn take(set: u64) -> Option<Info> {
    let own = own_signals();
    section::within(|| {
        loop {
            let ready = own.queue.pending() & set;
            if ready == 0 {
                return process::take_held(set);
            }
            if let Some(info) = own.queue.take(ready.trailing_zeros() as c_int + 1) {
                return Some(info);
            }
        }
    })
}

/// Waits for a signal of `set`: one for the caller, which is in its queue, or one for the process,
/// which the kernel has. So the caller waits in the kernel, on a kernel thread that it keeps
/// meanwhile, and a sender kicks that.
fn wait_for(set: u64, deadline: Deadline) -> Result<Info, c_int> {
    let own = own_signals();
    process::leave(set);
    loop {
        if let Some(info) = take(set) {
            return Ok(info);
        }
        let waited = blocking(|| {
            // SAFETY: takes nothing. The caller keeps its kernel thread in here.
            own.waits_on.store(unsafe { libc::gettid() }.cast_unsigned(), Ordering::SeqCst);
            own.waits_for.store(set, Ordering::SeqCst);
            // A sender stores the signal and then reads `waits_for`.
            let waited =
                if own.queue.pending() & set != 0 { None } else { Some(wait_here(set, deadline)) };
            own.waits_for.store(0, Ordering::SeqCst);
            waited
        });
        match waited {
            None => {}
            Some(Ok(info)) if is_kick(&info) => {}
            Some(Ok(info)) => return Ok(info),
            Some(Err(libc::EINTR)) if own.queue.pending() & set != 0 => {}
            Some(Err(error)) => return Err(error),
        }
    }
}

/// Waits on this kernel thread.
fn wait_here(set: u64, deadline: Deadline) -> Result<Info, c_int> {
    let mut info = std::mem::MaybeUninit::<Info>::zeroed();
    let left = deadline.left().map(|left| timespec {
        tv_sec: left.as_secs().cast_signed(),
        tv_nsec: left.subsec_nanos().into(),
    });
    let time = left.as_ref().map_or(0, |left| std::ptr::from_ref(left).expose_provenance());
    let (set_at, info_at) =
        ((&raw const set).expose_provenance(), info.as_mut_ptr().expose_provenance());
    // SAFETY: live structures, or null.
    match unsafe { system_call(libc::SYS_rt_sigtimedwait, [set_at, info_at, time, 8, 0, 0]) } {
        // SAFETY: written by the call.
        signal if signal > 0 => Ok(unsafe { info.assume_init() }),
        error => Err(-error as c_int),
    }
}

/// Replaces sigtimedwait(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_sigtimedwait(
    set: *const sigset_t,
    to: *mut Info,
    time: *const timespec,
) -> c_int {
    cancel::point();
    if !park::may_switch() || set.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { libc::sigtimedwait(set, to, time) };
    }
    // SAFETY: as above.
    let deadline = match unsafe { time.as_ref() } {
        None => Deadline::Never,
        Some(time) => match (check(time), u64::try_from(time.tv_sec)) {
            (Ok(()), Ok(seconds)) => {
                Deadline::after(std::time::Duration::new(seconds, time.tv_nsec as u32))
            }
            _ => return failed(libc::EINVAL),
        },
    };
    // SAFETY: as above.
    let found = wait_for(unsafe { mask::word(set) }, deadline);
    match found {
        Ok(info) => {
            if !to.is_null() {
                let mut info = info;
                if info.si_code == libc::SI_TKILL {
                    // As the C library, which uses tkill(2) in raise(3).
                    info.si_code = libc::SI_USER;
                }
                // SAFETY: as above.
                unsafe { to.write(info) };
            }
            info.si_signo
        }
        Err(error) => {
            cancel::point();
            failed(error)
        }
    }
}

/// Replaces sigwaitinfo(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_sigwaitinfo(
    set: *const sigset_t,
    to: *mut Info,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { kumi_interpose_sigtimedwait(set, to, std::ptr::null()) }
}

/// Replaces sigwait(3), which returns an error number, and never EINTR.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_sigwait(set: *const sigset_t, to: *mut c_int) -> c_int {
    loop {
        // SAFETY: the caller's promise.
        unsafe {
            let before = *libc::__errno_location();
            let signal = kumi_interpose_sigtimedwait(set, std::ptr::null_mut(), std::ptr::null());
            let error = std::mem::replace(&mut *libc::__errno_location(), before);
            if signal > 0 {
                *to = signal;
                return 0;
            }
            if error != libc::EINTR {
                return error;
            }
        }
    }
}

/// Waits until a handler has run. In one section.
fn wait_for_handler() {
    while section::handle_interruption() == Then::GoOn {
        park::park(Wait::Signal, None);
    }
}

/// Replaces sigsuspend(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn kumi_interpose_sigsuspend(set: *const sigset_t) -> c_int {
    cancel::point();
    if !park::may_switch() || set.is_null() || !record::is_created() {
        // SAFETY: the caller's promise.
        return unsafe { libc::sigsuspend(set) };
    }
    // SAFETY: as above.
    let during = unsafe { mask::word(set) } & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP));
    // What the mask lets in is put aside until the caller waits.
    section::within(|| mask_calls::with(during, wait_for_handler));
    cancel::point();
    failed(libc::EINTR)
}

/// Replaces pause(2).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_pause() -> c_int {
    cancel::point();
    if !park::may_switch() || !record::is_created() {
        // SAFETY: takes nothing.
        return unsafe { libc::pause() };
    }
    section::within(wait_for_handler);
    cancel::point();
    failed(libc::EINTR)
}
