//! read(2), write(2), recv(2), send(2) and their like on sockets; accept(2).
//!
//! What is no socket is left to [`pipe`], or to the C library: a wait there is one that the runtime
//! does not know, which costs a kernel thread for as long as it lasts.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use kumihimo_arch::system_call;
use kumihimo_runtime::park;
use kumihimo_runtime::readiness::Interest;
use libc::{c_long, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use crate::descriptor::table::{self, Place};
use crate::descriptor::transfer::{AGAIN, HAS_TIMEOUTS, repeat};
use crate::descriptor::{check_room, open, pipe, returned};
use crate::real::libc;
use crate::signal::cancel;

/// The place of `fd` if it is a socket and the caller waits as a microprocess.
#[inline]
fn socket(fd: c_int) -> Option<&'static Place> {
    if !park::may_switch() {
        return None;
    }
    table::place(fd).filter(|place| place.is_socket(fd))
}

const NOT_A_SOCKET: isize = -(libc::ENOTSOCK as isize);

/// Makes a receiving call. `None`: it is for the C library, because the file is no socket.
fn receive(
    fd: c_int,
    flags: c_int,
    wanted: usize,
    call: impl Fn(c_int) -> isize,
) -> Option<ssize_t> {
    let place = socket(fd)?;
    let may_wait = flags & libc::MSG_DONTWAIT == 0;
    // An error queue is not waited for (recv(2)), and a wait for all bytes is the kernel's.
    if flags & (libc::MSG_ERRQUEUE | libc::MSG_WAITALL | libc::MSG_OOB) != 0 {
        return None;
    }
    let attempt = || call(flags | libc::MSG_DONTWAIT);
    let empties = flags & libc::MSG_PEEK == 0 && place.short_read_empties(fd);
    let is_drained = |result: isize| empties && result > 0 && (result as usize) < wanted;
    let result = repeat(fd, place, Interest::Read, may_wait, attempt, is_drained);
    let result = result.unwrap_or(AGAIN);
    if result == NOT_A_SOCKET {
        place.is_no_socket();
        return None;
    }
    Some(returned(result))
}

/// Makes a sending call for `wanted` bytes. `call` gets the flags and the number of bytes that were
/// sent already: a stream takes what it has room for, and the call lasts until all are sent.
fn send(
    fd: c_int,
    flags: c_int,
    wanted: usize,
    mut call: impl FnMut(c_int, usize) -> isize,
) -> Option<ssize_t> {
    let place = socket(fd).filter(|place| !place.sends_wait_for_receiver(fd))?;
    let may_wait = flags & libc::MSG_DONTWAIT == 0;
    let mut sent = 0;
    loop {
        let attempt = || call(flags | libc::MSG_DONTWAIT, sent);
        let result = repeat(fd, place, Interest::Write, may_wait, attempt, |_| false);
        let result = result.unwrap_or(AGAIN);
        if result == NOT_A_SOCKET {
            place.is_no_socket();
            return None;
        }
        if result < 0 && sent > 0 {
            return Some(sent.cast_signed());
        }
        if result < 0 {
            return Some(returned(result));
        }
        sent += result.cast_unsigned();
        if sent >= wanted || result == 0 || !may_wait {
            return Some(sent.cast_signed());
        }
    }
}

fn call(number: c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: the program's own arguments, as it passed them to the C library.
    unsafe { system_call(number, arguments) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_recvfrom(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    cancel::around(|| {
        let (to_at, from_at) = (to.expose_provenance(), from.expose_provenance());
        let length_at = length.expose_provenance();
        receive(fd, flags, bytes, |flags| {
            let arguments = [fd as usize, to_at, bytes, flags as usize, from_at, length_at];
            call(libc::SYS_recvfrom, arguments)
        })
        // SAFETY: the caller's promise.
        .unwrap_or_else(|| unsafe { libc::recvfrom(fd, to, bytes, flags, from, length) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_recv(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    let null = std::ptr::null_mut();
    // SAFETY: the caller's promise.
    unsafe { kumi_interpose_recvfrom(fd, to, bytes, flags, null, std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_read(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
) -> ssize_t {
    cancel::around(|| {
        // A read of no bytes does not wait, as recv(2) of no bytes may.
        if bytes == 0 {
            // SAFETY: the caller's promise.
            return unsafe { libc::read(fd, to, bytes) };
        }
        let at = to.expose_provenance();
        receive(fd, 0, bytes, |flags| {
            call(libc::SYS_recvfrom, [fd as usize, at, bytes, flags as usize, 0, 0])
        })
        .or_else(|| {
            let read = || call(libc::SYS_read, [fd as usize, at, bytes, 0, 0, 0]);
            pipe::transfer(fd, bytes, Interest::Read, read)
        })
        // SAFETY: the caller's promise.
        .unwrap_or_else(|| unsafe { libc::read(fd, to, bytes) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose___read_chk(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    room: size_t,
) -> ssize_t {
    check_room(bytes, room);
    // SAFETY: the caller's promise.
    unsafe { kumi_interpose_read(fd, to, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose___recv_chk(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    check_room(bytes, room);
    // SAFETY: the caller's promise.
    unsafe { kumi_interpose_recv(fd, to, bytes, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose___recvfrom_chk(
    fd: c_int,
    to: *mut c_void,
    bytes: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    check_room(bytes, room);
    // SAFETY: the caller's promise.
    unsafe { kumi_interpose_recvfrom(fd, to, bytes, flags, from, length) }
}

/// The bytes of a vector. `None` if the kernel has to refuse it: too many parts, or too long.
unsafe fn total(parts: *const iovec, count: usize) -> Option<usize> {
    /// `UIO_MAXIOV` of the kernel.
    const MOST: usize = 1024;
    if parts.is_null() || count > MOST {
        return None;
    }
    // SAFETY: the caller's promise.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    let sum = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(part.iov_len))?;
    isize::try_from(sum).is_ok().then_some(sum)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_recvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    cancel::around(|| {
        let at = message.expose_provenance();
        // The total is not known here, so nothing is concluded from a short message.
        let done = receive(fd, flags, 0, |flags| {
            call(libc::SYS_recvmsg, [fd as usize, at, flags as usize, 0, 0, 0])
        })
        // SAFETY: the caller's promise.
        .unwrap_or_else(|| unsafe { libc::recvmsg(fd, message, flags) });
        // SAFETY: as above: the kernel has filled it.
        if done >= 0 && unsafe { (*message).msg_controllen } > 0 {
            // Descriptors may have come, of sockets with a time-out.
            HAS_TIMEOUTS.store(true, Ordering::Relaxed);
        }
        done
    })
}

fn message(parts: *const iovec, count: usize) -> msghdr {
    // SAFETY: all zeroes are a valid value.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.cast_mut();
    message.msg_iovlen = count;
    message
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_readv(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
) -> ssize_t {
    cancel::around(|| {
        // SAFETY: the caller's promise.
        let wanted = usize::try_from(count).ok().and_then(|count| unsafe { total(parts, count) });
        let Some(wanted) = wanted.filter(|wanted| *wanted > 0) else {
            // SAFETY: as above.
            return unsafe { libc::readv(fd, parts, count) };
        };
        let mut message = message(parts, count as usize);
        let at = (&raw mut message).expose_provenance();
        receive(fd, 0, wanted, |flags| {
            call(libc::SYS_recvmsg, [fd as usize, at, flags as usize, 0, 0, 0])
        })
        // SAFETY: the caller's promise.
        .unwrap_or_else(|| unsafe { libc::readv(fd, parts, count) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_sendto(
    fd: c_int,
    from: *const c_void,
    bytes: size_t,
    flags: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    cancel::around(|| {
        let (from_at, to_at) = (from.expose_provenance(), to.expose_provenance());
        send(fd, flags, bytes, |flags, sent| {
            let (from, left) = (from_at + sent, bytes - sent);
            let arguments = [fd as usize, from, left, flags as usize, to_at, length as usize];
            call(libc::SYS_sendto, arguments)
        })
        // SAFETY: the caller's promise.
        .unwrap_or_else(|| unsafe { libc::sendto(fd, from, bytes, flags, to, length) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_send(
    fd: c_int,
    from: *const c_void,
    bytes: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { kumi_interpose_sendto(fd, from, bytes, flags, std::ptr::null(), 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_write(
    fd: c_int,
    from: *const c_void,
    bytes: size_t,
) -> ssize_t {
    cancel::around(|| {
        let at = from.expose_provenance();
        send(fd, 0, bytes, |flags, sent| {
            call(libc::SYS_sendto, [fd as usize, at + sent, bytes - sent, flags as usize, 0, 0])
        })
        .or_else(|| {
            let write = || call(libc::SYS_write, [fd as usize, at, bytes, 0, 0, 0]);
            pipe::transfer(fd, bytes, Interest::Write, write)
        })
        // SAFETY: the caller's promise.
        .unwrap_or_else(|| unsafe { libc::write(fd, from, bytes) })
    })
}

/// Sends a message whose first bytes may have been sent already.
///
/// # Safety
/// `whole` is a message with `wanted` bytes.
unsafe fn send_message(fd: c_int, whole: &msghdr, flags: c_int, wanted: usize) -> Option<ssize_t> {
    let mut rest: Vec<iovec> = Vec::new();
    let mut message = *whole;
    send(fd, flags, wanted, |flags, sent| {
        if sent > 0 {
            // SAFETY: the caller's promise.
            let parts = unsafe { std::slice::from_raw_parts(whole.msg_iov, whole.msg_iovlen) };
            rest = behind(parts, sent);
            // Descriptors and credentials went with the first bytes (unix(7)).
            message.msg_control = std::ptr::null_mut();
            message.msg_controllen = 0;
            message.msg_iov = rest.as_mut_ptr();
            message.msg_iovlen = rest.len();
        }
        let at = (&raw const message).expose_provenance();
        call(libc::SYS_sendmsg, [fd as usize, at, flags as usize, 0, 0, 0])
    })
}

/// The parts behind the first `sent` bytes.
fn behind(parts: &[iovec], mut sent: usize) -> Vec<iovec> {
    let mut rest = Vec::with_capacity(parts.len());
    for part in parts {
        let skipped = part.iov_len.min(sent);
        sent -= skipped;
        if skipped < part.iov_len {
            let iov_base = part.iov_base.wrapping_byte_add(skipped);
            rest.push(iovec { iov_base, iov_len: part.iov_len - skipped });
        }
    }
    rest
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    cancel::around(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let wanted = message.as_ref().and_then(|it| total(it.msg_iov, it.msg_iovlen));
            wanted
                .and_then(|wanted| send_message(fd, &*message, flags, wanted))
                .unwrap_or_else(|| libc::sendmsg(fd, message, flags))
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_writev(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
) -> ssize_t {
    cancel::around(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let wanted = usize::try_from(count).ok().and_then(|count| total(parts, count));
            wanted
                .and_then(|wanted| send_message(fd, &message(parts, count as usize), 0, wanted))
                .unwrap_or_else(|| libc::writev(fd, parts, count))
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    cancel::around(|| {
        if let Some(place) = socket(fd) {
            let (address_at, length_at) = (address.expose_provenance(), length.expose_provenance());
            let accept = || {
                let arguments = [fd as usize, address_at, length_at, flags as usize, 0, 0];
                call(libc::SYS_accept4, arguments)
            };
            let attempt = || match pipe::when_ready(fd, Interest::Read, accept) {
                // A socket that does not listen is refused at once.
                AGAIN if table::option(fd, libc::SO_ACCEPTCONN) != Some(1) => accept(),
                result => result,
            };
            let result = repeat(fd, place, Interest::Read, true, attempt, |_| false);
            return open::accepted(fd, returned(result.unwrap_or_else(accept)) as c_int);
        }
        // SAFETY: the caller's promise.
        open::accepted(fd, unsafe { libc::accept4(fd, address, length, flags) })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn kumi_interpose_accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { kumi_interpose_accept4(fd, address, length, 0) }
}

/// Replaces setsockopt(2), to know whether any socket has a time-out.
#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    if level == libc::SOL_SOCKET && matches!(option, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) {
        HAS_TIMEOUTS.store(true, Ordering::Relaxed);
    }
    // SAFETY: the caller's promise.
    unsafe { libc::setsockopt(fd, level, option, value, length) }
}
