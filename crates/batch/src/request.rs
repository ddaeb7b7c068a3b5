//! A request to a back end: one system call, perhaps merged from several calls.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, RawFd};

use crate::op::Op;

/// One system call with raw arguments. Created only by a batch, from calls whose buffers are
/// borrowed for `'a`.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub(crate) what: RequestKind,
    _of: PhantomData<&'a mut [u8]>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestKind {
    Nop,
    Recv {
        fd: RawFd,
        into: *mut u8,
        len: usize,
        flags: i32,
    },
    Send {
        fd: RawFd,
        from: *const u8,
        len: usize,
    },
    RecvMessage {
        fd: RawFd,
        message: *mut libc::msghdr,
    },
    /// The parts, address and control data of the message do not move until the request is
    /// executed.
    SendMessage {
        fd: RawFd,
        message: *const libc::msghdr,
    },
    ReadAt {
        fd: RawFd,
        into: *const libc::iovec,
        parts: usize,
        at: u64,
    },
    WriteAt {
        fd: RawFd,
        from: *const u8,
        len: usize,
        at: u64,
    },
    Sync {
        fd: RawFd,
        data: bool,
    },
    Stat {
        path: *const libc::c_char,
        into: *mut libc::statx,
    },
}

/// The flags of every send to a stream: it never waits, and raises no SIGPIPE.
pub(crate) const SEND: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// The statx fields that are requested.
pub(crate) const STAT_FIELDS: u32 = libc::STATX_BASIC_STATS | libc::STATX_BTIME;

impl<'a> Request<'a> {
    /// Creates a request.
    ///
    /// # Safety
    /// Every pointer in `what` is valid for `'a` in the way that its system call needs.
    pub(crate) unsafe fn new(what: RequestKind) -> Request<'a> {
        Request { what, _of: PhantomData }
    }

    /// Creates the request of a single call that needs neither parts nor a message of its own.
    /// Returns `None` for a call that does.
    pub(crate) fn of(op: &mut Op<'a>) -> Option<Request<'a>> {
        let what = match op {
            Op::Nop => RequestKind::Nop,
            Op::Recv { socket, into, flags } => RequestKind::Recv {
                fd: socket.as_raw_fd(),
                into: into.as_mut_ptr(),
                len: into.len(),
                flags: *flags | libc::MSG_DONTWAIT,
            },
            Op::RecvMessage { socket, message } => {
                RequestKind::RecvMessage { fd: socket.as_raw_fd(), message: message.raw.get() }
            }
            Op::Send { socket, from } => {
                RequestKind::Send { fd: socket.as_raw_fd(), from: from.as_ptr(), len: from.len() }
            }
            Op::WriteAt { file, from, at } => RequestKind::WriteAt {
                fd: file.as_raw_fd(),
                from: from.as_ptr(),
                len: from.len(),
                at: *at,
            },
            Op::Sync { file, data } => RequestKind::Sync { fd: file.as_raw_fd(), data: *data },
            Op::Stat { path, into } => {
                RequestKind::Stat { path: path.as_ptr(), into: &raw mut **into }
            }
            Op::SendVectored { .. } | Op::SendDatagram { .. } | Op::ReadAt { .. } => return None,
        };
        // SAFETY: each pointer comes from a borrow for `'a` in `op`.
        Some(unsafe { Request::new(what) })
    }

    /// Returns whether every back end executes this request by a plain call: see
    /// [`Kind::is_always_plain`](crate::Kind::is_always_plain).
    pub(crate) fn is_always_plain(&self) -> bool {
        matches!(
            self.what,
            RequestKind::WriteAt { .. } | RequestKind::Sync { .. } | RequestKind::Stat { .. }
        )
    }
}
