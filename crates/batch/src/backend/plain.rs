//! The back end that is always available: one system call for each request.

use std::ptr::null;

use super::interface::Backend;
use crate::op::Outcome;
use crate::request::{Request, RequestKind, SEND, STAT_FIELDS};

/// Makes one system call for each request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Backend for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn enter(&mut self, requests: &[Request<'_>], outcomes: &mut [Outcome]) -> u64 {
        for (request, outcome) in requests.iter().zip(outcomes) {
            *outcome = make(request);
        }
        requests.len() as u64
    }
}

/// Makes one system call, without libc's wrappers. Those are pthread cancellation points, which
/// cost two atomic operations on the microprocess's thread block, often a cache miss, for calls
/// that do not wait.
pub(crate) fn make(request: &Request<'_>) -> Outcome {
    const NOWHERE: *const libc::sockaddr = null();
    // SAFETY: `Request::new` guarantees the pointers; each call receives them as its manual page
    // requires.
    let returned = unsafe {
        match request.what {
            RequestKind::Nop => {
                kumihimo_arch::call!(libc::SYS_getppid);
                0
            }
            RequestKind::Recv { fd, into, len, flags } => {
                kumihimo_arch::call!(libc::SYS_recvfrom, fd, into, len, flags, NOWHERE, NOWHERE)
            }
            RequestKind::RecvMessage { fd, message } => {
                kumihimo_arch::call!(libc::SYS_recvmsg, fd, message, libc::MSG_DONTWAIT)
            }
            RequestKind::Send { fd, from, len } => {
                kumihimo_arch::call!(libc::SYS_sendto, fd, from, len, SEND, NOWHERE, 0)
            }
            RequestKind::SendMessage { fd, message } => {
                kumihimo_arch::call!(libc::SYS_sendmsg, fd, message, SEND)
            }
            RequestKind::ReadAt { fd, into, parts, at } => {
                let at = at as libc::off_t;
                let now = libc::RWF_NOWAIT;
                let read = kumihimo_arch::call!(libc::SYS_preadv2, fd, into, parts, at, 0, now);
                if read == -1 {
                    // An emulator that lacks the call answers as a file does that lacks the flag.
                    let errno = libc::__errno_location();
                    if *errno == libc::ENOSYS {
                        *errno = libc::EOPNOTSUPP;
                    }
                }
                read
            }
            RequestKind::WriteAt { fd, from, len, at } => {
                kumihimo_arch::call!(libc::SYS_pwrite64, fd, from, len, at as libc::off_t)
            }
            RequestKind::Sync { fd, data: true } => kumihimo_arch::call!(libc::SYS_fdatasync, fd),
            RequestKind::Sync { fd, data: false } => kumihimo_arch::call!(libc::SYS_fsync, fd),
            RequestKind::Stat { path, into } => {
                kumihimo_arch::call!(libc::SYS_statx, libc::AT_FDCWD, path, 0, STAT_FIELDS, into)
            }
        }
    };
    Outcome::of_call(returned)
}
