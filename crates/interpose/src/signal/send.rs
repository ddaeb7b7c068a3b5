//! Signals to one thread: pthread_kill(3), tgkill(2), raise(3), pthread_sigqueue(3).

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use kumihimo_arch::{queued_signal, system_call};
use libc::pthread_t;

use crate::failed;
use crate::real::libc;
use crate::real::libc::{pthread_sigqueue, raise};
use crate::signal::action::{self, Disposition};
use crate::signal::kick::kick;
use crate::signal::queue::Info;
use crate::signal::section;
use crate::signal::set::{bit, is_signal};
use crate::signal::thread::Signals;
use crate::thread::record;
use crate::thread::record::own_signals;

/// Sends `signal` to a microprocess of this library. Returns an error number.
pub(super) fn send(to: &Signals, signal: c_int, info: &Info) -> c_int {
    let is_own = std::ptr::eq(to, own_signals());
    let disposition = action::disposition(signal);
    if !to.is_alive.load(Ordering::SeqCst) && !is_own && to.has_waiter.load(Ordering::SeqCst) {
        // It has ended, and was not joined.
        return 0;
    }
    let is_open = to.is_open(signal);
    let ends = disposition == Disposition::Default && is_open
        || matches!(signal, libc::SIGKILL | libc::SIGSTOP);
    if ends {
        // The whole process ends or stops, whichever thread the signal is for.
        // SAFETY: integers.
        return unsafe { end_process(signal) };
    }
    if disposition == Disposition::Ignored && is_open {
        return 0;
    }
    section::within(|| {
        if !to.queue.add(signal, info) {
            return libc::EAGAIN;
        }
        if !is_own {
            interrupt(to, signal);
        }
        0
    })
}

/// Has the default action happen to the process, before the caller goes on: by the caller's own
/// kernel thread, which then must not block the signal.
unsafe fn end_process(signal: c_int) -> c_int {
    let mask = bit(signal);
    let at = (&raw const mask).expose_provenance();
    // SAFETY: one live word; integers.
    let done = unsafe {
        system_call(libc::SYS_rt_sigprocmask, [libc::SIG_UNBLOCK as usize, at, 0, 8, 0, 0]);
        let (process, own) = (libc::getpid() as usize, libc::gettid() as usize);
        system_call(libc::SYS_tgkill, [process, own, signal as usize, 0, 0, 0])
    };
    -done as c_int
}

/// Interrupts a thread for a signal that is in its queue, if it has that open or waits for it.
fn interrupt(to: &Signals, signal: c_int) {
    if to.waits_for.load(Ordering::SeqCst) & bit(signal) != 0 {
        kick(to.waits_on.load(Ordering::SeqCst), signal);
        return;
    }
    if !to.is_open(signal) {
        return;
    }
    if let Some(waiter) = to.waiter()
        && let Some(tid) = kumihimo_runtime::signals::interrupt(waiter)
    {
        kick(tid, signal);
    }
}

/// Interrupts a thread for another reason than a signal, with a signal that does nothing.
pub(crate) fn nudge(to: &Signals, signal: c_int) {
    if let Some(waiter) = to.waiter()
        && let Some(tid) = kumihimo_runtime::signals::interrupt(waiter)
    {
        kick(tid, signal);
    }
}

/// Sends `signal` to a thread of this library. Returns an error number.
///
/// # Safety
/// As pthread_kill(3).
unsafe fn send_to(thread: pthread_t, signal: c_int, code: c_int, value: usize) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let record = unsafe { record::created(thread) }?;
    if signal == 0 {
        return Some(0);
    }
    if !is_signal(signal) || matches!(signal, 32 | 33) {
        return Some(libc::EINVAL);
    }
    Some(send(&record.signals, signal, &queued_signal::info(signal, code, value)))
}

/// Replaces pthread_kill(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_pthread_kill(
    thread: pthread_t,
    signal: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        send_to(thread, signal, libc::SI_TKILL, 0)
            .unwrap_or_else(|| libc::pthread_kill(thread, signal))
    }
}

/// Replaces pthread_sigqueue(3). The value is passed as its pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_pthread_sigqueue(
    thread: pthread_t,
    signal: c_int,
    value: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        send_to(thread, signal, libc::SI_QUEUE, value.expose_provenance())
            .unwrap_or_else(|| pthread_sigqueue(thread, signal, value))
    }
}

/// Replaces raise(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_raise(signal: c_int) -> c_int {
    if !record::is_created() {
        // SAFETY: an integer.
        return unsafe { raise(signal) };
    }
    // SAFETY: the caller's own block.
    let done = unsafe { kumi_interpose_pthread_kill(libc::pthread_self(), signal) };
    if done == 0 { 0 } else { failed(done) }
}

/// Replaces tgkill(2), for the numbers of microprocesses.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kumi_interpose_tgkill(
    process: libc::pid_t,
    number: libc::pid_t,
    signal: c_int,
) -> c_int {
    // SAFETY: takes nothing.
    let is_here = process == unsafe { libc::getpid() } || process == -1;
    if let Some(thread) = record::with_number(number.cast_unsigned()).filter(|_| is_here) {
        // SAFETY: a block of this library.
        return match unsafe { send_to(thread, signal, libc::SI_TKILL, 0) } {
            Some(0) => 0,
            error => failed(error.unwrap_or(libc::ESRCH)),
        };
    }
    if process == -1 {
        // SAFETY: integers. tkill(2), which names no process.
        return unsafe { kumihimo_arch::call!(libc::SYS_tkill, number, signal) as c_int };
    }
    // SAFETY: integers.
    unsafe { kumihimo_arch::call!(libc::SYS_tgkill, process, number, signal) as c_int }
}
