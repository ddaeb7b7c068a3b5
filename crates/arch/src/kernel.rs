//! System calls of the runtime under the names of the C library: an error is -1 and errno.
//!
//! A program may define these functions of the C library anew, as `kumihimo::interpose!` does, so
//! that its own calls wait as microprocesses. The runtime's calls must not meet those definitions.
//!
//! errno is written once by a call that fails, and never by one that succeeds: handlers of signals
//! use these functions, too.

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::io;

use libc::{epoll_event, nfds_t, pollfd, rusage, size_t, ssize_t, timespec};

use crate::system_call;

/// A value that a system call takes in a register.
pub trait Argument {
    /// The register's contents.
    fn word(self) -> usize;
}

macro_rules! integers {
    ($($type:ty)*) => {
        $(
            impl Argument for $type {
                #[inline(always)]
                fn word(self) -> usize {
                    self as usize
                }
            }
        )*
    };
}

integers!(i32 u32 i64 u64 isize usize);

impl<T> Argument for *const T {
    #[inline(always)]
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Argument for *mut T {
    #[inline(always)]
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Argument for &T {
    #[inline(always)]
    fn word(self) -> usize {
        std::ptr::from_ref(self).expose_provenance()
    }
}

impl<T> Argument for &mut T {
    #[inline(always)]
    fn word(self) -> usize {
        std::ptr::from_mut(self).expose_provenance()
    }
}

/// Makes a system call as syscall(2): `call!(NUMBER, ARGUMENT, ...)`, with up to six integers and
/// pointers. Unsafe, as syscall(2).
#[macro_export]
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::kernel::made($number, &[$($crate::kernel::Argument::word($argument)),*])
    };
}

/// Makes a system call. The arguments that are not given are 0.
///
/// # Safety
/// The requirements of the system call.
#[inline(always)]
pub unsafe fn made(number: c_long, given: &[usize]) -> c_long {
    let mut arguments = [0; 6];
    arguments[..given.len()].copy_from_slice(given);
    // SAFETY: the caller's promise.
    returned(unsafe { system_call(number, arguments) })
}

/// Sets errno if `result` is the kernel's negated error number. Returns -1 then.
#[inline(always)]
pub(crate) fn returned(result: isize) -> c_long {
    if !(-4095..0).contains(&result) {
        return result as c_long;
    }
    failed(-result as c_int)
}

/// Sets errno and returns -1.
#[cold]
pub(crate) fn failed(error: c_int) -> c_long {
    // SAFETY: errno belongs to the calling thread.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// As read(2).
///
/// # Safety
/// As read(2).
#[inline]
pub unsafe fn read(fd: c_int, to: *mut c_void, bytes: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_read, fd, to, bytes) as ssize_t }
}

/// As write(2).
///
/// # Safety
/// As write(2).
#[inline]
pub unsafe fn write(fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_write, fd, from, bytes) as ssize_t }
}

/// As close(2).
///
/// # Safety
/// As close(2).
#[inline]
pub unsafe fn close(fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_close, fd) as c_int }
}

/// As fcntl(2).
///
/// # Safety
/// As fcntl(2).
#[inline]
pub unsafe fn fcntl(fd: c_int, command: c_int, argument: impl Argument) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_fcntl, fd, command, argument) as c_int }
}

/// As dup3(2).
///
/// # Safety
/// As dup3(2).
#[inline]
pub unsafe fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_dup3, from, to, flags) as c_int }
}

/// As dup2(2) of two numbers that differ.
///
/// # Safety
/// As dup2(2).
#[inline]
pub unsafe fn dup2(from: c_int, to: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { dup3(from, to, 0) }
}

/// As socket(2).
///
/// # Safety
/// As socket(2).
#[inline]
pub unsafe fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_socket, domain, kind, protocol) as c_int }
}

/// As eventfd(2).
///
/// # Safety
/// As eventfd(2).
#[inline]
pub unsafe fn eventfd(count: c_uint, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_eventfd2, count, flags) as c_int }
}

/// As epoll_create1(2).
///
/// # Safety
/// As epoll_create1(2).
#[inline]
pub unsafe fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_epoll_create1, flags) as c_int }
}

/// As epoll_ctl(2): `token` is the data of the events of `fd`. Async-signal-safe.
///
/// # Errors
/// Those of epoll_ctl(2).
#[inline]
pub fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    events: c_int,
    token: u64,
) -> io::Result<()> {
    let event = epoll_event { events: events.cast_unsigned(), u64: token };
    // SAFETY: a live event, which the kernel copies.
    let done = unsafe { call!(libc::SYS_epoll_ctl, set, operation, fd, &raw const event) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// As epoll_wait(2).
///
/// # Safety
/// As epoll_wait(2).
#[inline]
pub unsafe fn epoll_wait(set: c_int, to: *mut epoll_event, room: c_int, wait: c_int) -> c_int {
    // SAFETY: the caller's promise. No signal mask.
    unsafe { call!(libc::SYS_epoll_pwait, set, to, room, wait, 0usize, 8usize) as c_int }
}

/// The kernel's signal set in bytes (`_NSIG / 8`).
const SET: usize = 8;

/// As ppoll(2) without a signal mask.
///
/// # Safety
/// As ppoll(2).
#[inline]
pub unsafe fn ppoll(all: *mut pollfd, count: nfds_t, wait: *const timespec) -> c_int {
    // The kernel writes what is left of the time.
    // SAFETY: the caller's promise: null or a time.
    let mut wait = unsafe { wait.as_ref() }.copied();
    let at = wait.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_ppoll, all, count, at, 0usize, SET) as c_int }
}

/// As poll(2).
///
/// # Safety
/// As poll(2).
#[inline]
pub unsafe fn poll(all: *mut pollfd, count: nfds_t, milliseconds: c_int) -> c_int {
    let time = timespec {
        tv_sec: (milliseconds / 1000).into(),
        tv_nsec: (milliseconds % 1000 * 1_000_000).into(),
    };
    let wait = if milliseconds < 0 { std::ptr::null() } else { &raw const time };
    // SAFETY: the caller's promise.
    unsafe { ppoll(all, count, wait) }
}

/// As pause(2).
pub fn pause() -> c_int {
    // SAFETY: no descriptors and no time.
    unsafe { ppoll(std::ptr::null_mut(), 0, std::ptr::null()) }
}

/// As nanosleep(2).
///
/// # Safety
/// As nanosleep(2).
#[inline]
pub unsafe fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_nanosleep, time, left) as c_int }
}

/// As sched_yield(2).
#[inline]
pub fn sched_yield() -> c_int {
    // SAFETY: takes nothing.
    unsafe { call!(libc::SYS_sched_yield) as c_int }
}

/// The ID of the calling kernel thread, also for a microprocess: gettid(2).
#[inline]
#[must_use]
pub fn gettid() -> libc::pid_t {
    // SAFETY: takes nothing.
    unsafe { call!(libc::SYS_gettid) as libc::pid_t }
}

/// As getrusage(2).
///
/// # Safety
/// As getrusage(2).
#[inline]
pub unsafe fn getrusage(of: c_int, to: *mut rusage) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_getrusage, of, to) as c_int }
}

/// As sigpending(2). Writes the kernel's word; the rest of the set is left as it is.
///
/// # Safety
/// As sigpending(2).
#[inline]
pub unsafe fn sigpending(to: *mut libc::sigset_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { call!(libc::SYS_rt_sigpending, to, SET) as c_int }
}

/// As raise(3).
pub fn raise(signal: c_int) -> c_int {
    // SAFETY: integers.
    unsafe { call!(libc::SYS_tgkill, libc::getpid(), gettid(), signal) as c_int }
}

/// As sigaction(2), by the C library, which knows how a handler returns.
///
/// # Safety
/// As sigaction(2).
pub unsafe fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { crate::library::next_sigaction(signal, new, before) }
}

/// As signal(2) with `SIG_DFL`.
pub fn reset_action(signal: c_int) {
    // SAFETY: all zeroes are the default action without flags; a live structure.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        sigaction(signal, &default, std::ptr::null_mut());
    }
}
